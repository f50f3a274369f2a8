"""Which era and which dialect a server is spoken to in: asked for on the command line, or found out.

2026-07-28, basic/versioning and basic/transports/streamable-http, "Backward Compatibility": a modern
request first, `initialize` where the answer is none of a modern server.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.client import sep1686, sep2663, v2025_11_25
from gateway.client.connection import Connection
from gateway.client.options import LACKS, Call, Tasks
from gateway.client.screen import Screen
from gateway.client.spoken import Spoken
from gateway.client.stateless import VERSION, Modern
from gateway.client.trees import as_list, as_object
from gateway.client.view import Letter
from gateway.protocol.codes import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gateway.protocol.envelope import value
from gateway.protocol.eras import HANDSHAKE
from gateway.protocol.errors import Refusal, UpstreamLost

DISCOVER: Final = "server/discover"

_PROBE_SECONDS: Final = 10
_NO_TASKS: Final = "the server has no tasks: this is an ordinary call"
_NAMES: Final = {
    "a": "dialect a (SEP-1686: capabilities.tasks.tools.call)",
    "b": "dialect b (2025-11-25: capabilities.tasks.requests.tools.call)",
    "c": f"dialect c (the extension {sep2663.EXTENSION})",
}


async def agree(wanted: Call | Tasks, connection: Connection, screen: Screen, hello: Modern) -> Spoken:
    """Begin to speak with the server; raise `Refusal` or `UpstreamLost` where it cannot be had so.

    `hello` is how this client presents itself.
    """
    target = wanted.target
    if target.session is not None:
        # What was negotiated in a session that goes on is not known here; `call` prints the dialect.
        return Spoken(letter="a" if target.dialect == "auto" else target.dialect)
    found: dict[str, Any] | None = None
    if target.dialect == "c" or (target.dialect == "auto" and not _lacks(wanted, "c")):
        found = await _discover(connection, hello)
        spoken = None if found is None else _stateless(wanted, found, screen)
        if spoken is not None:
            tasks = spoken.letter == "c" and (isinstance(wanted, Tasks) or wanted.task)
            connection.modern = msgspec.structs.replace(hello, tasks=tasks)
            return spoken
        if target.dialect == "c":
            raise UpstreamLost(f"the server does not speak protocol {VERSION}, which dialect c needs")
    connection.modern = None
    try:
        offered = await connection.initialize(hello.name, hello.version, hello.capabilities)
    except Refusal as refused:
        if isinstance(wanted, Call) or (found is None and not _lacks(wanted, "c")):
            raise
        why = LACKS.get((wanted.action, "c"), "it has no tasks of dialect c")
        raise UpstreamLost(f"the server takes no initialize ({refused.message}), and {why}") from None
    letter = _handshake(wanted, offered, connection.version)
    if isinstance(wanted, Tasks):
        if not sep1686.offered(offered) and not v2025_11_25.offered(offered):
            screen.note("the server declares no tasks; asking all the same")
    elif letter is None and wanted.task:
        screen.note(_NO_TASKS)
    return Spoken(letter=letter, capabilities=offered)


async def _discover(connection: Connection, hello: Modern) -> dict[str, Any] | None:
    """Return the capabilities of a stateless server, `None` for a server of the handshake era."""
    connection.modern = hello
    versions: list[Any] = []
    try:
        result = as_object(value(await connection.request(DISCOVER, {}, seconds=_PROBE_SECONDS)))
        versions = as_list(result.get("supportedVersions"))
        if VERSION in versions:
            return as_object(result.get("capabilities"))
    except Refusal as refused:
        if refused.code in (HEADER_MISMATCH, MISSING_CAPABILITY) or refused.status == 429:
            raise
        if refused.code == UNSUPPORTED_VERSION:
            versions = as_list(as_object(refused.data).get("supported"))
    except UpstreamLost as lost:
        if not lost.sent or lost.status in (401, 403):
            raise
    if versions and not any(version in HANDSHAKE for version in versions):
        spelled = ", ".join(str(version) for version in versions)
        raise UpstreamLost(f"the server speaks protocol {spelled}, this client {VERSION} and older")
    return None


def _stateless(wanted: Call | Tasks, offered: dict[str, Any], screen: Screen) -> Spoken | None:
    """Return how to speak with a stateless server, `None` where the older era may have more."""
    has = sep2663.offered(offered)
    letter: Letter | None = "c" if has else None
    spoken = Spoken(letter=letter, stateless=True, capabilities=offered)
    if has or (isinstance(wanted, Call) and not wanted.task):
        return spoken
    if wanted.target.dialect == "c":
        raise _offers_none("c")
    if isinstance(wanted, Call):
        screen.note(_NO_TASKS)
        return spoken
    return None


def _handshake(wanted: Call | Tasks, offered: dict[str, Any], version: str) -> Letter | None:
    """Return the dialect for a server of the handshake era."""
    asked = wanted.target.dialect
    has: dict[Letter, bool] = {
        "b": v2025_11_25.offered(offered) and version == "2025-11-25",
        "a": sep1686.offered(offered),
    }
    about_tasks = isinstance(wanted, Tasks) or wanted.task
    if asked in ("a", "b"):
        if about_tasks and not has[asked]:
            raise _offers_none(asked)
        _check_declared(wanted, asked, offered)
        return asked if about_tasks else None
    if isinstance(wanted, Call):
        return next((letter for letter, there in has.items() if there), None) if wanted.task else None
    return _for_tasks(wanted, has, offered)


def _for_tasks(wanted: Tasks, has: dict[Letter, bool], offered: dict[str, Any]) -> Letter:
    """Return the newest dialect of the server that has the action; one that says nothing is asked."""
    spoken: list[Letter] = [letter for letter, there in has.items() if there]
    asked: list[Letter] = spoken or list(has)
    able: list[Letter] = [letter for letter in asked if not _lacks(wanted, letter)]
    if not able:
        newest: Letter = spoken[0] if spoken else "b"
        raise UpstreamLost(f"the server does not have it: {LACKS[wanted.action, newest]}")
    if able[0] == "b" and len(able) > 1 and _undeclared(wanted, offered):
        return able[1]
    if spoken:
        _check_declared(wanted, able[0], offered)
    return able[0]


def _lacks(wanted: Call | Tasks, letter: Letter) -> bool:
    return isinstance(wanted, Tasks) and (wanted.action, letter) in LACKS


def _undeclared(wanted: Call | Tasks, offered: dict[str, Any]) -> bool:
    if not isinstance(wanted, Tasks) or wanted.action not in ("list", "cancel"):
        return False
    return v2025_11_25.offered(offered) and not v2025_11_25.can(offered, wanted.action)


def _check_declared(wanted: Call | Tasks, letter: Letter, offered: dict[str, Any]) -> None:
    if letter == "b" and isinstance(wanted, Tasks) and _undeclared(wanted, offered):
        action = wanted.action
        raise UpstreamLost(
            f"the server does not {action} tasks: it declares no capabilities.tasks.{action}"
        )


def _offers_none(letter: Letter) -> UpstreamLost:
    return UpstreamLost(f"the server does not offer tasks of {_NAMES[letter]}")
