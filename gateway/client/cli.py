"""The door of the client: `add_parsers` for the command line, `run` for what it asked."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Final, TextIO

from gateway import __version__
from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.client.arguments import Subparsers, add_call, add_tasks, parse_call, parse_tasks
from gateway.client.asker import Asker
from gateway.client.call import Caller
from gateway.client.commands import follower_of, run_tasks
from gateway.client.connection import Connection
from gateway.client.desk import Desk
from gateway.client.era import agree
from gateway.client.http import Http
from gateway.client.keys import Keys
from gateway.client.means import Means
from gateway.client.options import Call, Tasks
from gateway.client.report import NO_WAY, PROG, show_failure
from gateway.client.screen import Screen
from gateway.client.stateless import Modern
from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.errors import Refusal, UpstreamLost

INTERRUPTED: Final = 130


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands `call` and `tasks`; their parsed arguments carry `wanted` for `run`."""
    add_call(subparsers).set_defaults(wanted=_wanted_call)
    add_tasks(subparsers).set_defaults(wanted=parse_tasks)


def run(args: argparse.Namespace) -> int:
    """Carry out a parsed `call` or `tasks` and return the exit code.

    0 success, 1 an error that the tool or the server reported, 2 wrong usage or no connection, 130
    interrupted. Wrong words after `call` raise `SystemExit(2)` as argparse does.
    """
    wanted: Call | Tasks = args.wanted(args)
    person = sys.stdin.isatty() and sys.stderr.isatty()
    try:
        return asyncio.run(_with_terminal(wanted, person=person))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout is gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_WAY


async def perform(wanted: Call | Tasks, screen: Screen, clock: Clock) -> int:
    """Open a session, or take up the one that was named, and carry out one command in it."""
    http = Http(wanted.target, clock)
    try:
        async with Crew("client") as crew:
            return await _in_session(wanted, screen, clock, http, crew)
    finally:
        await http.close()


async def _with_terminal(wanted: Call | Tasks, *, person: bool) -> int:
    keys = Keys(sys.stdin.fileno()) if person else None
    screen = terminal(sys.stdout, sys.stderr, keys, wanted)
    return await perform(wanted, screen, SystemClock())


def terminal(out: TextIO, err: TextIO, keys: Keys | None, wanted: Call | Tasks) -> Screen:
    """Return the screen of a command."""
    return Screen(out, err, keys, as_json=wanted.target.as_json)


async def _in_session(wanted: Call | Tasks, screen: Screen, clock: Clock, http: Http, crew: Crew) -> int:
    asker = Asker(screen, wanted.answers)
    desk = Desk(screen, asker, crew)
    connection = Connection(http, crew, clock, desk)
    means = Means(connection, desk, asker, screen, clock, crew)
    # A session that somebody else began is theirs to end.
    connection.left = wanted.target.session is not None
    hello = Modern(
        name=f"{PROG}-client",
        version=__version__,
        capabilities=asker.capabilities,
        tasks=False,
        log_level=wanted.log_level if isinstance(wanted, Call) else None,
    )
    try:
        spoken = await agree(wanted, connection, screen, hello)
        if not spoken.stateless and (isinstance(wanted, Call) or wanted.wait):
            connection.listen()
        if isinstance(wanted, Tasks):
            return await run_tasks(wanted, means, follower_of(spoken.letter, means))
        return await Caller(wanted, means, spoken).run()
    except (Refusal, UpstreamLost) as wrong:
        sessions = connection.modern is None and wanted.target.session is None
        return show_failure(screen, wrong, _hint(wanted, wrong) if sessions else None)
    finally:
        if not connection.left:
            await connection.end_session()


def _hint(wanted: Call | Tasks, wrong: Refusal | UpstreamLost) -> str | None:
    """Return what to try: without credentials a task belongs to its session (SEP-1686 section 8.1)."""
    lost = isinstance(wrong, Refusal) and wrong.code == INVALID_PARAMS
    if not lost or not isinstance(wanted, Tasks):
        return None
    return "a task that was made without credentials is seen in its own session only: --session ID"


def _wanted_call(args: argparse.Namespace) -> Call:
    return parse_call(f"{PROG} call", args.words)
