"""Rates per scope, counted in the store, with the spelling of the `limits` library.

Fixed windows, each beginning with its first hit: one counter for a scope and kind, whatever the limit,
and it takes any number of hits in one step. (A moving window would keep a time stamp for each hit.)
So hits are taken in blocks of a twentieth of the limit and spent here, which keeps a
round trip out of most requests; what a replica has not spent when the window ends is lost to the
others, never gained. Limits below 40 are exact.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Literal, cast

from limits import RateLimitItem, parse

from gateway.aio.clock import Clock, SystemClock
from gateway.protocol.errors import ConfigError, StoreAway
from gateway.store import scripts
from gateway.store.link import Link
from gateway.tasks.model import Scope

_log = logging.getLogger("gateway.store.rates")

Kind = Literal["create", "get", "result", "list"]

_PURSES: Final = 10_000
_QUIET_S: Final = 1.0


class _Purse:
    """Hits that one scope may still spend here until its window `ends`, in monotonic seconds.

    `empty` says that the window has none left for anybody.
    """

    __slots__ = ("empty", "ends", "left", "lock")

    def __init__(self) -> None:
        self.empty = False
        self.left = 0
        self.ends = 0.0
        self.lock = asyncio.Lock()


class StoreRates:
    """The `RateLimits` of `gateway.store.port`.

    `rates` has a text like "600/minute" for each kind that is limited, or `None`; raises `ConfigError`.
    """

    def __init__(self, link: Link, rates: Mapping[Kind, str | None], *, clock: Clock | None = None) -> None:
        self._items = {kind: _item(kind, text) for kind, text in rates.items() if text is not None}
        self._link = link
        self._clock = SystemClock() if clock is None else clock
        self._purses: OrderedDict[tuple[Kind, Scope], _Purse] = OrderedDict()
        self._quiet_until = 0.0

    def __repr__(self) -> str:
        return f"<StoreRates {', '.join(self._items)}: {len(self._purses)} scopes>"

    def reconfigure(self, rates: Mapping[Kind, str | None]) -> None:
        """Count by other rates from now on; raises `ConfigError`."""
        self._items = {kind: _item(kind, text) for kind, text in rates.items() if text is not None}
        self._purses.clear()

    async def hit(self, kind: Kind, scope: Scope) -> float | None:
        """Count one; `None` where it is allowed, else the seconds until it would be."""
        item = self._items.get(kind)
        if item is None or self._clock.monotonic() < self._quiet_until:
            return None
        purse = self._purse(kind, scope)
        async with purse.lock:
            left_ms = (purse.ends - self._clock.monotonic()) * 1000
            if left_ms > 0 and purse.empty:
                return min(left_ms / 1000, item.get_expiry())
            if left_ms > 0 and purse.left > 0:
                purse.left -= 1
                return None
            try:
                return await self._refill(purse, item, self._link.keys.rate(kind, scope))
            except StoreAway as away:
                # Rates must not stop plain work, nor cost it a time-out for each request.
                self._quiet_until = self._clock.monotonic() + _QUIET_S
                _log.debug("rates are not counted: %s", away)
                return None

    def _purse(self, kind: Kind, scope: Scope) -> _Purse:
        key = (kind, scope)
        purse = self._purses.get(key)
        if purse is None:
            purse = self._purses[key] = _Purse()
            if len(self._purses) > _PURSES:
                self._purses.popitem(last=False)
        else:
            self._purses.move_to_end(key)
        return purse

    async def _refill(self, purse: _Purse, item: RateLimitItem, name: bytes) -> float | None:
        block = max(1, item.amount // 20)
        window = b"%d" % (item.get_expiry() * 1000)
        began = self._clock.monotonic()
        (reply,) = await self._link.quick.ask(scripts.RATE.call((name,), b"%d" % block, window))
        count, left_ms = cast("list[int]", reply)
        allowed = count <= item.amount
        if allowed and block == 1:
            return None
        purse.left, purse.empty = block - 1, not allowed
        purse.ends = began + left_ms / 1000
        return None if allowed else min(max(0.001, left_ms / 1000), item.get_expiry())


def _item(kind: str, text: str) -> RateLimitItem:
    try:
        return parse(text)
    except ValueError:
        raise ConfigError(
            f'limits.rates.{kind}: {text!r} is not a rate; write it as "600/minute"'
        ) from None
