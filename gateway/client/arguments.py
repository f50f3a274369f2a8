"""The command line: words in, options out; mistakes end with usage and exit code 2."""

from __future__ import annotations

import argparse
import json
import os
import re
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from gateway.client.options import LATEST, Action, Call, Target, Tasks
from gateway.config.units import read_duration
from gateway.protocol.envelope import dump, members, text_of
from gateway.protocol.eras import HANDSHAKE

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
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
    "delete": "delete a task and its result",
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
        one.add_argument("url", metavar="URL", type=_url)
        if action == "list":
            one.add_argument("--limit", type=_count, default=100, help="at most so many (100)")
        else:
            one.add_argument("task_id", metavar="ID")
        if action == "result":
            one.add_argument("--wait", action="store_true", help="wait for the end, answer what is asked")
            _add_answers(one)
        if action == "cancel":
            why = "id of the original request; `call` uses the task's id, which is the default"
            one.add_argument("--request-id", type=_request_id, default=None, metavar="N", help=why)
        one.add_argument("--session", metavar="ID", help="the session that the task belongs to")
        one.add_argument(
            "--protocol-version", choices=HANDSHAKE, default=LATEST, help="what the session negotiated"
        )
        _add_common(one)
        one.set_defaults(parser=one)
    return parser


def call_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the words after `call`."""
    parser = argparse.ArgumentParser(prog=prog, description=_CALL_TEXT)
    parser.add_argument("url", metavar="URL", type=_url, help="the MCP endpoint, http://host:port/name/mcp")
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument("pairs", metavar="key=value", nargs="*", type=_pair)
    parser.add_argument(
        "--args", metavar="JSON", type=_object, default={}, help="all arguments as one object"
    )
    parser.add_argument("--task", action="store_true", help="run it as a task and poll for the end")
    parser.add_argument(
        "--keep-alive", metavar="TIME", type=_keep_alive, default=msgspec.UNSET, help="1h, 30m … or forever"
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
    """Return what the parsed words of `tasks` ask for."""
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
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=_header,
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
    parser.add_argument("--answer", metavar="key=value", type=_pair, action="append", help=text)


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
        session=session,
        version=version,
        as_json=args.json,
        repeat=tuple(repeat),
    )


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL like http://127.0.0.1:8080/mcp")
    return text


def _pair(word: str) -> tuple[str, msgspec.Raw]:
    name, equals, text = word.partition("=")
    insist = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not key=value")
    found = _json(text)
    if found is not None:
        return name, found
    if insist:
        raise argparse.ArgumentTypeError(f"the value of {name} is not valid JSON: {text!r}")
    return name, msgspec.Raw(_encoded(json.dumps(text, ensure_ascii=False)))


def _object(text: str) -> dict[str, msgspec.Raw]:
    found = _json(text.strip())
    if found is None or not bytes(found).startswith(b"{"):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text!r}")
    return members(bytes(found))


def _json(text: str) -> msgspec.Raw | None:
    """Return valid JSON as it was spelled (RFC 8259: no NaN), so that numbers keep their digits."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(_encoded(text))


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"not valid UTF-8: {text!r}") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, content = text.partition(":")
    if not colon or _TOKEN.fullmatch(name.strip()) is None or not content.strip().isprintable():
        # The text may hold a secret and is not repeated.
        raise argparse.ArgumentTypeError("a header looks like 'Name: value'")
    return name.strip(), content.strip()


def _keep_alive(text: str) -> int | None:
    if text == "forever":
        return None
    try:
        return read_duration(text, minimum=0)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _request_id(text: str) -> bytes:
    """Return 7 as a number, "7" in quotes and anything else as a string."""
    number = text.removeprefix("-")
    if (number.isascii() and number.isdigit()) or text_of(text.encode()) is not None:
        return text.encode()
    return dump(text)
