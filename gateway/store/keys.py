"""Every key of the store and every lifetime, in one place.

All keys of one scope share one hash tag, so that each script touches one slot (design section 6):

    mtg:{<upstream>:<scope>}:t:<digest>   record of a task (hash)
    mtg:{<upstream>:<scope>}:r:<digest>   its outcome (string)
    mtg:{<upstream>:<scope>}:l:<digest>   its log (stream)
    mtg:{<upstream>:<scope>}:i            the scope's tasks by creation (sorted set, microseconds)
    mtg:{<upstream>:<scope>}:e            the scope's tasks by the end of their lives (sorted set, ms)
    mtg:{<upstream>:<scope>}:a            the scope's tasks that have not ended (set)
    mtg:{<upstream>:<scope>}:c            request → task, and task → request, to find what to forget (hash)

The calls of one rule that wait for turns have a hash tag of their own, `mtg:turns:{<upstream>:<pattern>}:`
and a letter, see `lua/shared_turns.lua`.

Outside it: `mtg:leases` (sorted set of ends), `mtg:secret`, `mtg:ended:<session>`, `mtg:rate*`,
`mtg:link:<upstream>:<session>` (the replica that owns a link), `mtg:parcel:<name>` (a large message between
replicas), `mtg:kept:<upstream>:<session>` (what a session is about, hash), and the channels `mtg:wake`,
`mtg:to:<replica>` and `mtg:far:<replica>`. The request map is one hash, not a key per request, since a
script may only touch keys that it was given, and at the end of a task nobody knows its request any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from gateway.protocol.errors import ConfigError
from gateway.tasks.model import Scope, Status, TaskKey

DEFAULT_PREFIX: Final = "mtg:"

# What a task that has not ended may take beyond its time limit before its keys go by themselves.
SLACK_MS: Final = 3_600_000
# The score of a task without end; the largest number that a sorted set keeps exactly.
FOREVER_MS: Final = 2**53 - 1


class Keys:
    """The keys of one store, by scope and task."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if "{" in prefix or "}" in prefix:
            raise ConfigError(
                "store.prefix must not hold braces: they would move the hash tag of every key"
            )
        self._prefix = prefix.encode()
        self.leases = self._prefix + b"leases"
        self.secret = self._prefix + b"secret"
        self.probe = self._prefix + b"probe"
        self.wake = self._prefix + b"wake"
        self._scope = lru_cache(maxsize=4096)(self._make_scope)

    def member(self, key: TaskKey) -> bytes:
        """Return the name of a task in wake-ups: upstream, scope and digest."""
        return b"%b:%b" % (_scope_name(key.scope), key.digest.encode())

    def scope(self, scope: Scope) -> tuple[bytes, ...]:
        """Return the keys that a scope has once: index, expiries, active set, request map."""
        return self._scope(scope)[1]

    def task(self, key: TaskKey) -> tuple[bytes, ...]:
        """Return the scope's keys and then the task's: record, outcome, log."""
        return self.of_digest(key.scope, key.digest.encode())

    def of_digest(self, scope: Scope, digest: bytes) -> tuple[bytes, ...]:
        """Return the same as `task`, of a task whose id is not known here."""
        base, shared = self._scope(scope)
        return (
            *shared,
            b"%b:t:%b" % (base, digest),
            b"%b:r:%b" % (base, digest),
            b"%b:l:%b" % (base, digest),
        )

    def record(self, key: TaskKey) -> bytes:
        """Return the key of a task's record."""
        return b"%b:t:%b" % (self._scope(key.scope)[0], key.digest.encode())

    def outcome(self, key: TaskKey) -> bytes:
        """Return the key of a task's outcome."""
        return b"%b:r:%b" % (self._scope(key.scope)[0], key.digest.encode())

    def log(self, key: TaskKey) -> bytes:
        """Return the key of a task's log."""
        return b"%b:l:%b" % (self._scope(key.scope)[0], key.digest.encode())

    def line(self, upstream: str, pattern: str) -> tuple[bytes, ...]:
        """Return the keys of the turns of one rule, in the order of `lua/shared_turns.lua`."""
        base = b"%bturns:{%b:%b}" % (self._prefix, _safe(upstream), _safe(pattern))
        return tuple(b"%b:%c" % (base, letter) for letter in b"rhswpon")

    def tag(self, scope: Scope) -> bytes:
        """Return a scope's tag as keys and scripts spell it."""
        return _safe(scope.tag)

    def ended_session(self, session: str) -> bytes:
        """Return the key that says that a session has been ended."""
        return b"%bended:%b" % (self._prefix, _digest(session.encode("utf-8", "surrogatepass")))

    def link(self, upstream: str, tag: str) -> bytes:
        """Return the key that says which replica owns a link."""
        return b"%blink:%b:%b" % (self._prefix, _safe(upstream), _safe(tag))

    def kept(self, upstream: str, tag: str) -> bytes:
        """Return the key of what a session is about."""
        return b"%bkept:%b:%b" % (self._prefix, _safe(upstream), _safe(tag))

    def parcel(self, name: str) -> bytes:
        """Return the key of a large message that is on its way to another replica."""
        return b"%bparcel:%b" % (self._prefix, _safe(name))

    def letters(self, replica: str) -> bytes:
        """Return the channel of the letters about links to one replica."""
        return b"%bfar:%b" % (self._prefix, _safe(replica))

    def rate(self, kind: str, scope: Scope) -> bytes:
        """Return the counter of one kind of a scope's requests."""
        return b"%brate:%b:%b" % (self._prefix, kind.encode(), _scope_name(scope))

    def commands(self, owner: str) -> bytes:
        """Return the channel of the commands to one replica."""
        return b"%bto:%b" % (self._prefix, _safe(owner))

    def _make_scope(self, scope: Scope) -> tuple[bytes, tuple[bytes, ...]]:
        base = b"%b{%b}" % (self._prefix, _scope_name(scope))
        return base, (base + b":i", base + b":e", base + b":a", base + b":c")


def request_field(session: str, request_id: bytes) -> bytes:
    """Return the name of a session's request in the scope's request map; bounded, whatever the id."""
    tag = session.encode("utf-8", "surrogatepass")
    return b"r" + _digest(b"%d:%b%b" % (len(tag), tag, request_id))


def lease_member(key: TaskKey, owner: str) -> bytes:
    """Return the name of a replica's lease of a task; it leads back to the scope and the digest."""
    return b"%b:%b:%b" % (_safe(owner), _scope_name(key.scope), key.digest.encode())


def owner_name(owner: str) -> bytes:
    """Return a replica's name without colons."""
    return _safe(owner)


def read_lease(member: bytes) -> tuple[str, Scope, bytes]:
    """Return the owner, the scope and the digest that a lease names."""
    owner, upstream, tag, digest = member.split(b":")
    return _plain(owner), Scope(_plain(upstream), _plain(tag)), digest


def lua_constants(moves: Mapping[Status, frozenset[Status]]) -> bytes:
    """Return the table of moves and the lifetimes as Lua, so that the scripts cannot differ from Python."""
    rows = [
        f"{status} = {{{', '.join(f'{target} = true' for target in sorted(targets))}}}"
        for status, targets in moves.items()
    ]
    table = f"local MOVES = {{{', '.join(rows)}}}\n"
    return f"{table}local SLACK, FOREVER = {SLACK_MS}, {FOREVER_MS}\n".encode()


@lru_cache(maxsize=4096)
def _scope_name(scope: Scope) -> bytes:
    return b"%b:%b" % (_safe(scope.upstream), _safe(scope.tag))


@lru_cache(maxsize=4096)
def _safe(name: str) -> bytes:
    """Return a name without colons and braces: two scopes can never share a key."""
    return quote(name, safe="", errors="surrogatepass").encode()


def _plain(name: bytes) -> str:
    return unquote(name.decode(), errors="surrogatepass")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:32].encode()
