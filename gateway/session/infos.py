"""Who the upstream says it is: shown in each result of the stateless era (2026-07-28 basic)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.protocol.envelope import members
from gateway.protocol.errors import GatewayError
from gateway.session.asked import Asked

_log: Final = logging.getLogger("gateway.session")
_SECONDS: Final = 5.0


class Infos:
    """Remembers the `serverInfo` of each upstream."""

    def __init__(self) -> None:
        self._known: dict[str, bytes | None] = {}

    def __repr__(self) -> str:
        return f"<Infos of {sorted(self._known)}>"

    async def of(self, asked: Asked) -> bytes | None:
        """Return the raw `serverInfo` of the upstream of a request, `None` where that does not say.

        What is to be shown with it is there already, and does not wait for long.
        """
        name = asked.visit.served.name
        if name not in self._known:
            try:
                async with asyncio.timeout(_SECONDS):
                    opened = await asked.visit.served.crossing.opened(asked.caller, asked.headers)
            except (GatewayError, TimeoutError) as wrong:
                _log.info("upstream %s does not say who it is: %s", name, wrong)
                return None
            self.learn(name, opened)
        return self._known[name]

    def known(self, name: str) -> bytes | None:
        """Return what is known already."""
        return self._known.get(name)

    def learn(self, name: str, opened: bytes) -> None:
        """Take note of what an upstream's `initialize` result says."""
        info = members(opened).get("serverInfo")
        self._known[name] = None if info is None else bytes(info)
