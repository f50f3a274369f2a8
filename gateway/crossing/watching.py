"""Subscriptions of stateless clients, heard in held sessions of the handshake era."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.crossing.changes import Listener, all_of
from gateway.crossing.hearsay import Hearsay
from gateway.crossing.held import HeldSession
from gateway.crossing.pool import HeldSessions
from gateway.crossing.port import Caller, Wanted
from gateway.protocol.envelope import Envelope, dump, members, peek
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import put_together

_log = logging.getLogger("gateway.crossing")

_RETRY: Final = 1.0
_RETRY_MAX: Final = 30.0
# A session that lived so long was no failure.
_LIVED: Final = 60.0
_KINDS: Final = ("tools", "prompts", "resources")


def honourable(result: bytes, wanted: Wanted) -> Wanted:
    """Return the part of a filter that an upstream announces in its `initialize` result (raw)."""
    capabilities = members(members(result).get("capabilities"))
    kinds = {kind: getattr(wanted, kind) and _says(capabilities, kind, "listChanged") for kind in _KINDS}
    return Wanted(**kinds, uris=wanted.uris if _says(capabilities, "resources", "subscribe") else ())


class Watching:
    """Listens for callers, over the loss of sessions; with `hearsay` at other replicas too."""

    def __init__(self, pool: HeldSessions, clock: Clock, hearsay: Hearsay | None) -> None:
        self._pool = pool
        self._clock = clock
        self._hearsay = hearsay
        self._listeners: dict[bytes, set[Listener]] = {}

    def __repr__(self) -> str:
        return f"<Watching in {self._pool!r}>"

    async def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message, then notifications that match.

        Where the session is lost another is opened and everything is said to have changed, for nobody
        knows. Raises `UpstreamLost` where that cannot be, `Refusal` where there are too many sessions.
        """
        key = self._pool.key(caller, headers)
        listener = Listener(wanted, None if self._hearsay is None else self._clock)
        self._listeners.setdefault(key, set()).add(listener)
        try:
            if self._hearsay is not None:
                await self._hearsay.watch(key)
            async with aclosing(self._listen(caller, wanted, headers, listener)) as coming:
                async for raw in coming:
                    yield raw
        finally:
            if self._hearsay is not None:
                self._hearsay.unwatch(key)
            self._listeners[key].discard(listener)
            if not self._listeners[key]:
                del self._listeners[key]

    def tell(self, key: bytes, one: Envelope) -> None:
        """Tell those who listen to a caller's sessions of a change in one of them."""
        for listener in self._listeners.get(key, ()):
            listener.offer(one)

    def tell_all(self) -> None:
        """Tell everybody that everything has changed, for nobody knows."""
        for listeners in self._listeners.values():
            for listener in listeners:
                for raw in all_of(listener.wanted):
                    listener.offer(peek(raw))

    async def _listen(
        self, caller: Caller, wanted: Wanted, headers: Headers, listener: Listener
    ) -> AsyncGenerator[bytes, None]:
        fruitless, missed = 0, False
        while True:
            began = self._clock.monotonic()
            session = await self._pool.shared(caller, headers)
            session.listeners.add(listener)
            listener.begin(lost=session.lost)
            try:
                await self._subscribe(session, wanted, headers)
                await session.heard()
                for raw in all_of(honourable(session.result, wanted)) if missed else [b""]:
                    yield raw
                while (news := await listener.take()) is not None:
                    yield news
            finally:
                session.listeners.discard(listener)
                self._unsubscribe(session, wanted, headers)
            missed = True
            fruitless = 0 if self._clock.monotonic() - began >= _LIVED else fruitless + 1
            if fruitless > 1:
                await self._clock.sleep(min(_RETRY_MAX, _RETRY * 2**fruitless))

    async def _subscribe(self, session: HeldSession, wanted: Wanted, headers: Headers) -> None:
        """Subscribe to what nobody in the session has subscribed to yet."""
        uris = honourable(session.result, wanted).uris
        for uri in uris:
            _count(session, uri, 1)
        async with session.setting:
            for uri in uris:
                if uri in session.subscribed:
                    continue
                try:
                    answer = await session.ask("resources/subscribe", _about(uri), headers)
                except UpstreamLost:
                    if session.lost:
                        return
                    raise
                if answer.error is None:
                    session.subscribed.add(uri)
                else:
                    _log.info("the upstream refused a subscription to a resource")

    def _unsubscribe(self, session: HeldSession, wanted: Wanted, headers: Headers) -> None:
        """Unsubscribe from what nobody in the session listens to any more."""
        uris = honourable(session.result, wanted).uris
        for uri in uris:
            _count(session, uri, -1)
        if session.usable and any(uri not in session.watched for uri in uris):
            self._pool.crew.spawn(_give_up(session, headers), "unsubscribe")


async def _give_up(session: HeldSession, headers: Headers) -> None:
    try:
        async with session.setting:
            for uri in session.subscribed - session.watched.keys():
                if session.usable and uri not in session.watched:
                    session.subscribed.discard(uri)
                    await session.ask("resources/unsubscribe", _about(uri), headers)
    except GatewayError as wrong:
        _log.debug("a subscription was not ended: %s", wrong)


def _count(session: HeldSession, uri: str, step: int) -> None:
    """Count a listener in or out."""
    number = session.watched.get(uri, 0) + step
    if number > 0:
        session.watched[uri] = number
    else:
        session.watched.pop(uri, None)


def _about(uri: str) -> bytes:
    return put_together({"uri": dump(uri)})


def _says(capabilities: dict[str, msgspec.Raw], kind: str, what: str) -> bool:
    return bytes(members(capabilities.get(kind)).get(what, b"false")) == b"true"
