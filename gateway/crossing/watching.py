"""Subscriptions of stateless clients, heard in held sessions of the handshake era."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from gateway.aio.clock import Clock
from gateway.crossing.changes import Listener, all_of
from gateway.crossing.held import HeldSession
from gateway.crossing.pool import HeldSessions
from gateway.crossing.port import Caller, Wanted
from gateway.protocol.envelope import dump, members
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
    """Listens for callers, over the loss of sessions."""

    def __init__(self, pool: HeldSessions, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Watching in {self._pool!r}>"

    async def listen(self, caller: Caller, wanted: Wanted, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield an empty message, then notifications that match.

        Where the session is lost another is opened and everything is said to have changed, for nobody
        knows. Raises `UpstreamLost` where that cannot be, `Refusal` where there are too many sessions.
        """
        listener = Listener(wanted)
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
