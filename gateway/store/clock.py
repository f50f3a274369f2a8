"""The store's clock, which all replicas share: what is decided at one by a time is judged at another by it.

The clocks of machines differ. Expiry, leases and time stamps are the store's own (design section 6); this
is for the few times that a replica has to judge by itself.
"""

from __future__ import annotations

from typing import cast

from gateway.aio.clock import Clock
from gateway.store import scripts
from gateway.store.link import Link


class StoreClock:
    """The `SharedClock` of `gateway.store.port`: the store's time as last heard, and what has passed since.

    Until it was heard, the machine's. What has passed is monotonic: no step of the machine's clock is seen.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._ahead_ms: float | None = None

    def __repr__(self) -> str:
        return f"<StoreClock {'not heard' if self._ahead_ms is None else 'heard'}>"

    def monotonic(self) -> float:
        """Return seconds that never go back, which are this replica's own."""
        return self._clock.monotonic()

    def now_ms(self) -> int:
        """Return the store's milliseconds since the epoch."""
        if self._ahead_ms is None:
            return self._clock.now_ms()
        return round(self._clock.monotonic() * 1000 + self._ahead_ms)

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds."""
        await self._clock.sleep(seconds)

    async def look(self) -> None:
        """Hear the store's time; raise `StoreAway`."""
        began = self._clock.monotonic()
        (reply,) = await self._link.leases.ask(scripts.NOW.call((self._link.keys.leases,)))
        # It was said somewhere between the question and its answer.
        self._ahead_ms = cast(int, reply) - (began + self._clock.monotonic()) * 500
