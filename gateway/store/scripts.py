"""The scripts of the store: read once from `lua/`, each with what it shares with others in front of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from gateway.store.keys import lua_constants
from gateway.tasks.machine import MOVES

Words = tuple[bytes, ...]
"""A Redis command as it goes out."""


class Script:
    """One atomic step; its file says what it takes and what it returns."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, *, scoped: bool, turns: bool = False) -> None:
        folder = files("gateway.store.lua")
        parts = [folder.joinpath("shared_record.lua").read_bytes()]
        if scoped:
            parts += [lua_constants(MOVES), folder.joinpath("shared_scope.lua").read_bytes()]
        if turns:
            parts.append(folder.joinpath("shared_turns.lua").read_bytes())
        self.name = name
        self.source = b"\n".join([*parts, folder.joinpath(f"{name}.lua").read_bytes()])
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        _by_sha[self.sha] = self

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def call(self, keys: Sequence[bytes], *args: bytes) -> Words:
        """Return the command that runs the script."""
        return (b"EVALSHA", self.sha, b"%d" % len(keys), *keys, *args)


_by_sha: Final[dict[bytes, Script]] = {}


def script_of(words: Words) -> Script | None:
    """Return the script that a command runs, if it runs one."""
    return _by_sha.get(words[1]) if words[0] == b"EVALSHA" else None


READ: Final = Script("read", scoped=False)
OUTCOME: Final = Script("outcome", scoped=False)
READ_LOG: Final = Script("read_log", scoped=False)
FIND: Final = Script("find", scoped=False)
LEASE: Final = Script("lease", scoped=False)
EXPIRED: Final = Script("expired", scoped=False)
NOW: Final = Script("now", scoped=False)
RATE: Final = Script("rate", scoped=False)
OWN: Final = Script("own", scoped=False)
DISOWN: Final = Script("disown", scoped=False)
CREATE: Final = Script("create", scoped=True)
START: Final = Script("start", scoped=True)
ASK: Final = Script("ask", scoped=True)
TAKE_PENDING: Final = Script("take_pending", scoped=True)
DROP_PENDING: Final = Script("drop_pending", scoped=True)
NOTE: Final = Script("note", scoped=True)
APPEND: Final = Script("append", scoped=True)
FINISH: Final = Script("finish", scoped=True)
CANCEL: Final = Script("cancel", scoped=True)
REMOVE: Final = Script("remove", scoped=True)
PAGE: Final = Script("page", scoped=True)
CLAIM: Final = Script("claim", scoped=True)
HOLD: Final = Script("hold", scoped=True)
MARK: Final = Script("mark", scoped=True)
LEFT: Final = Script("left", scoped=True)
DELIVERED: Final = Script("delivered", scoped=True)
BESPEAK: Final = Script("bespeak", scoped=True)
TURN_ASK: Final = Script("turn_ask", scoped=False, turns=True)
TURN_LEAVE: Final = Script("turn_leave", scoped=False, turns=True)
