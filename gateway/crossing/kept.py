"""What a handshake session with a stateless upstream is about, on every replica (design I6).

The log level and the resources subscribed to are kept in the store, for replicas that see the session
for the first time, and told to those that know it. What changes goes to the replica that listens.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from gateway.protocol.envelope import Envelope, dump, members, text_of, value
from gateway.protocol.errors import StoreAway

_log: Final = logging.getLogger("gateway.crossing")

SET_LEVEL: Final = "logging/setLevel"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
# From replica to replica alone: who says it has the client's stream now.
LISTENS_METHOD: Final = "notifications/gateway/listens"
_LEVEL: Final = "level"
_URI: Final = "uri:"

Tell = Callable[[str, bytes], Awaitable[None]]


class Kept(Protocol):
    """A few fields for each session of an upstream. All raise `StoreAway`."""

    async def read(self, upstream: str, tag: str) -> dict[str, str]:
        """Return the fields of a session."""
        ...

    async def write(self, upstream: str, tag: str, fields: Mapping[str, str | None]) -> None:
        """Set fields of a session, or take them away where they are `None`."""
        ...

    async def forget(self, upstream: str, tag: str) -> None:
        """Keep nothing of a session any more."""
        ...


class About(msgspec.Struct, frozen=True):
    """What a session is about."""

    level: str | None = None
    uris: frozenset[str] = frozenset()


def listens(uris: frozenset[str]) -> bytes:
    """Return the word of a replica that has the client's stream, and listens for these resources."""
    return dump({"jsonrpc": "2.0", "method": LISTENS_METHOD, "params": {"uris": sorted(uris)}})


def listened_for(one: Envelope) -> frozenset[str]:
    """Return the resources that a replica says it listens for."""
    found = value(members(one.params).get("uris"))
    uris = cast("list[Any]", found) if isinstance(found, list) else []
    return frozenset(uri for uri in uris if isinstance(uri, str))


class SharedState:
    """What the sessions with one upstream are about; `tell` says a message to all other replicas."""

    def __init__(self, upstream: str, kept: Kept, tell: Tell) -> None:
        self._upstream = upstream
        self._kept = kept
        self._tell = tell

    def __repr__(self) -> str:
        return f"<SharedState of {self._upstream}>"

    async def about(self, tag: str) -> About:
        """Return what a session is about, as far as the store can be asked."""
        try:
            fields = await self._kept.read(self._upstream, tag)
        except StoreAway as away:
            _log.info("session %s goes on without its log level and subscriptions: %s", tag, away)
            return About()
        uris = frozenset(name.removeprefix(_URI) for name in fields if name.startswith(_URI))
        return About(fields.get(_LEVEL), uris)

    async def changed(self, tag: str, one: Envelope) -> None:
        """Keep what a request has changed, and tell it; it holds here whether or not the store is there."""
        params = members(one.params)
        if one.method == SET_LEVEL:
            fields = {_LEVEL: text_of(params.get("level"))}
        else:
            uri = text_of(params.get("uri")) or ""
            fields = {_URI + uri: "" if one.method == SUBSCRIBE else None}
        try:
            await self._kept.write(self._upstream, tag, fields)
        except StoreAway as away:
            _log.info("session %s: a change is not known to other replicas: %s", tag, away)
            return
        await self._tell(tag, one.raw)

    async def say(self, tag: str, message: bytes) -> None:
        """Say a message to the other replicas."""
        await self._tell(tag, message)

    async def forget(self, tag: str) -> None:
        """Keep nothing of a session any more."""
        try:
            await self._kept.forget(self._upstream, tag)
        except StoreAway:
            # It goes by itself.
            return
