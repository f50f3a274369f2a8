"""What a client of the handshake era hears of changes: subscriptions of the stateless era, kept open.

2026-07-28 "Subscriptions". A new filter is a new stream; the older one ends once the newer is
acknowledged, so that nothing is missed in between.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final, cast

import msgspec

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.results import error_to_handshake
from gateway.crossing.roads import Road
from gateway.protocol.envelope import dump, members, peek, request, value
from gateway.protocol.errors import GatewayError, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import drop_member
from gateway.protocol.stateless import SUBSCRIPTION_ID

_log: Final = logging.getLogger("gateway.crossing")
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_ACKNOWLEDGE_SECONDS: Final = 30.0
_SILENT: Final = b'{"code":-32603,"message":"The upstream ended the subscription at once"}'
_RETRY: Final = 1.0
_RETRY_MAX: Final = 30.0


class Acknowledged(msgspec.Struct, frozen=True):
    """What the upstream agreed to: resources by URI, or the raw error object of its refusal."""

    uris: frozenset[str] = frozenset()
    error: bytes | None = None


class Subscription:
    """Keeps one stream of changes open: all changes of lists, and of some resources.

    `stamp` completes a request, `put` takes each notification.
    """

    def __init__(
        self,
        road: Road,
        stamp: Callable[[bytes], bytes],
        put: Callable[[bytes], None],
        clock: Clock,
        crew: Crew,
    ) -> None:
        self._road = road
        self._stamp = stamp
        self._put = put
        self._clock = clock
        self._crew = crew
        self._reading: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self.uris: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<Subscription {'open' if self.open else 'closed'}, {len(self.uris)} resources>"

    @property
    def open(self) -> bool:
        """Whether a stream is open or being opened again."""
        return self._reading is not None and not self._reading.done()

    async def want(self, uris: frozenset[str], headers: Headers) -> Acknowledged:
        """Open a stream for these resources; raise `UpstreamLost` where the upstream does not answer.

        Only the resources that are acknowledged stay wanted.
        """
        async with self._turn:
            acknowledged: asyncio.Future[Acknowledged | GatewayError]
            acknowledged = asyncio.get_running_loop().create_future()
            older = self._reading
            reading = self._crew.spawn(self._read(uris, headers, acknowledged), "subscription")
            try:
                async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                    found = await acknowledged
            except BaseException as wrong:
                reading.cancel()
                if isinstance(wrong, TimeoutError):
                    raise UpstreamLost("the upstream did not acknowledge a subscription") from None
                raise
            if isinstance(found, GatewayError):
                raise found
            if found.error is None:
                self._reading = reading
                self.uris = found.uris
                if older is not None:
                    older.cancel()
            return found

    def end(self) -> None:
        """End the stream."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(
        self,
        uris: frozenset[str],
        headers: Headers,
        acknowledged: asyncio.Future[Acknowledged | GatewayError],
    ) -> None:
        delay = _RETRY
        while True:
            try:
                error = await self._stream(uris, headers, acknowledged)
            except GatewayError as lost:
                _log.info("a subscription was lost: %s", lost)
                if not acknowledged.done():
                    acknowledged.set_result(lost)
                    return
            else:
                if not acknowledged.done():
                    acknowledged.set_result(Acknowledged(error=error or _SILENT))
                if error is not None:
                    return
            await self._clock.sleep(delay)
            delay = min(_RETRY_MAX, delay * 2)
            uris = self.uris

    async def _stream(
        self,
        uris: frozenset[str],
        headers: Headers,
        acknowledged: asyncio.Future[Acknowledged | GatewayError],
    ) -> bytes | None:
        """Read one stream to its end; return the error that it ended with."""
        ident = dump(f"mtg-listen-{secrets.token_hex(12)}")
        params = dump({"notifications": _filter(uris)})
        message = self._stamp(request(ident, "subscriptions/listen", params))
        async with aclosing(self._road.ask(message, headers)) as coming:
            async for raw in coming:
                one = peek(raw)
                if one.kind == "response":
                    return None if one.error is None else error_to_handshake(one.error)
                if one.method != _ACKNOWLEDGED:
                    self._put(drop_member(raw, ("params", "_meta", SUBSCRIPTION_ID), prune=True))
                elif not acknowledged.done():
                    acknowledged.set_result(_agreed(one.params))
        return None


def _filter(uris: frozenset[str]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(
        ("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True
    )
    return {**found, "resourceSubscriptions": sorted(uris)} if uris else found


def _agreed(params: bytes | None) -> Acknowledged:
    found = value(members(members(params).get("notifications")).get("resourceSubscriptions"))
    uris = cast("list[Any]", found) if isinstance(found, list) else []
    return Acknowledged(frozenset(uri for uri in uris if isinstance(uri, str)))
