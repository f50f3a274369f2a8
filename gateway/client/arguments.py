"""The command line: words in, options out; mistakes end with usage and exit code 2."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final, Protocol

import msgspec

from gateway.client.options import LACKS, LATEST, Action, Call, DialectChoice, Target, Tasks
from gateway.client.words import (
    count_word,
    header_word,
    keep_alive_word,
    object_word,
    pair_word,
    request_id_word,
    url_word,
)
from gateway.protocol.envelope import dump
from gateway.protocol.eras import HANDSHAKE

_CHOICES: Final[tuple[DialectChoice, ...]] = ("auto", "a", "b", "c")
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_CALL_HELP: Final = "call a tool, plainly or as a task"
_CALL_TEXT: Final = """\
Call a tool and print its text. Each argument is key=value: a value that is valid JSON is taken as
JSON, anything else as a string; key:=JSON insists on JSON. Exit codes: 0 success, 1 the tool or the
server reported an error, 2 wrong usage or no connection, 130 interrupted (the call is cancelled)."""
_ACTIONS: Final[dict[Action, str]] = {
    "list": "list the tasks that you may see",
    "get": "show the status of a task",
    "result": "print the result of a completed task",
    "update": "answer what a task asks (dialect c)",
    "delete": "delete a task and its result (dialect a)",
    "cancel": "cancel the request of a task and wait until the task says so",
}


class Subparsers(Protocol):
    """What `ArgumentParser.add_subparsers()` returns, as far as it is needed here."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """Add the parser of one command."""
        ...


def add_call(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add `call`; its words are parsed by `parse_call`, for arguments may stand between options.

    argparse mixes options and a list of arguments only outside of subcommands, so this parser takes
    every word as it is: no word begins with its prefix character.
    """
    parser = subparsers.add_parser("call", help=_CALL_HELP, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")
    return parser


def add_tasks(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add `tasks` with its actions."""
    parser = subparsers.add_parser("tasks", help="list, look at, fetch, delete and cancel tasks")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action, text in _ACTIONS.items():
        one = actions.add_parser(action, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.add_argument("url", metavar="URL", type=url_word)
        if action == "list":
            one.add_argument("--limit", type=count_word, default=100, help="at most so many (100)")
        else:
            one.add_argument("task_id", metavar="ID")
        if action == "result":
            one.add_argument("--wait", action="store_true", help="wait for the end, answer what is asked")
            _add_answers(one)
        if action == "update":
            whole = "a whole response by its key, as JSON; without any, the questions are asked"
            one.add_argument(
                "--input", metavar="KEY=JSON", type=pair_word, action="append", default=[], help=whole
            )
            _add_answers(one)
        if action == "cancel":
            why = "dialect a: id of the original request; `call` uses the task's id, which is the default"
            one.add_argument("--request-id", type=request_id_word, default=None, metavar="N", help=why)
        session = "the session that the task belongs to (dialects a and b; auto takes a then)"
        one.add_argument("--session", metavar="ID", help=session)
        one.add_argument(
            "--protocol-version", choices=HANDSHAKE, default=LATEST, help="what the session negotiated"
        )
        _add_common(one)
        one.set_defaults(parser=one)
    return parser


def call_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the words after `call`."""
    parser = argparse.ArgumentParser(prog=prog, description=_CALL_TEXT)
    parser.add_argument(
        "url", metavar="URL", type=url_word, help="the MCP endpoint, http://host:port/name/mcp"
    )
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument("pairs", metavar="key=value", nargs="*", type=pair_word)
    parser.add_argument(
        "--args", metavar="JSON", type=object_word, default={}, help="all arguments as one object"
    )
    parser.add_argument("--task", action="store_true", help="run it as a task and poll for the end")
    parser.add_argument(
        "--keep-alive",
        metavar="TIME",
        type=keep_alive_word,
        default=msgspec.UNSET,
        help="1h, 30m … or forever",
    )
    parser.add_argument("--detach", action="store_true", help="leave once the task exists (implies --task)")
    parser.add_argument("--log-level", choices=_LEVELS, help="ask the server for log messages")
    _add_answers(parser)
    _add_common(parser)
    return parser


def parse_call(prog: str, words: list[str]) -> Call:
    """Return the call that the words after `call` ask for; exit with 2 and usage on a mistake."""
    parser = call_parser(prog)
    args = parser.parse_intermixed_args(words)
    task = args.task or args.detach
    if args.keep_alive is not msgspec.UNSET and not task:
        parser.error("--keep-alive is about a task: add --task")
    return Call(
        target=_target(args, parser, session=None, version=LATEST),
        tool=args.tool,
        arguments={**args.args, **dict(args.pairs)},
        task=task,
        keep_alive=args.keep_alive,
        detach=args.detach,
        answers=dict(args.answer) if args.answer else None,
        log_level=args.log_level,
    )


def parse_tasks(args: argparse.Namespace) -> Tasks:
    """Return what the parsed words of `tasks` ask for; exit with 2 where the dialect does not have it."""
    if (lack := LACKS.get((args.action, args.dialect))) is not None:
        args.parser.error(lack)
    if args.session is not None and args.dialect == "c":
        args.parser.error("--session: dialect c has no sessions")
    task_id: str = getattr(args, "task_id", "")
    asked: bytes | None = getattr(args, "request_id", None)
    answer: list[tuple[str, msgspec.Raw]] | None = getattr(args, "answer", None)
    return Tasks(
        target=_target(args, args.parser, session=args.session, version=args.protocol_version),
        action=args.action,
        task_id=task_id,
        request_id=dump(task_id) if asked is None else asked,
        limit=getattr(args, "limit", 100),
        wait=getattr(args, "wait", False),
        answers=dict(answer) if answer else None,
        inputs=dict(getattr(args, "input", [])),
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dialect",
        choices=_CHOICES,
        default="auto",
        help="a: SEP-1686; b: 2025-11-25; c: 2026-07-28 with the tasks extension; auto: the newest there",
    )
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=header_word,
        action="append",
        default=[],
        help="an HTTP header",
    )
    parser.add_argument(
        "--bearer-env", metavar="NAME", help="environment variable that holds a bearer token"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    text = "answer a form of the server with this value instead of asking at the prompt"
    parser.add_argument("--answer", metavar="key=value", type=pair_word, action="append", help=text)


def _target(
    args: argparse.Namespace, parser: argparse.ArgumentParser, *, session: str | None, version: str
) -> Target:
    headers: list[tuple[str, str]] = list(args.header)
    repeat: list[str] = []
    if args.bearer_env is not None:
        token = os.environ.get(args.bearer_env, "").strip()
        if not token.isprintable() or not token:
            parser.error(f"--bearer-env: the environment variable {args.bearer_env} holds no token")
        headers.append(("Authorization", f"Bearer {token}"))
        repeat += ["--bearer-env", args.bearer_env]
    return Target(
        url=args.url,
        headers=tuple(headers),
        dialect=args.dialect,
        session=session,
        version=version,
        as_json=args.json,
        repeat=tuple(repeat),
    )
