"""Requests of the stateless era: each carries all there is to know of its client (2026-07-28)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gateway.bridge.discover import discovered
from gateway.crossing.port import Caller
from gateway.protocol.codes import METHOD_NOT_FOUND
from gateway.protocol.envelope import dump, members, response
from gateway.protocol.eras import SUPPORTED
from gateway.protocol.errors import Refusal, StoreAway, UpstreamLost
from gateway.protocol.headers import to_upstream
from gateway.protocol.stateless import check_headers, check_single, read_meta
from gateway.session.asked import Asked, in_its_codes
from gateway.session.begin import store_away
from gateway.session.bridged import Bridged
from gateway.session.exchange import Answer, Outbound, json_answer
from gateway.session.extension import Extension
from gateway.session.infos import Infos
from gateway.session.plain import unavailable
from gateway.session.subscribing import Subscribing
from gateway.session.visit import Visit

_log: Final = logging.getLogger("gateway.session")
DISCOVERY_MS: Final = 60_000
# What the era has no more, or never had: nothing of it may reach an upstream that still has it.
GONE: Final = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
        "tasks/delete",
    }
)
Way = Callable[[Asked], Awaitable[Outbound]]


class Stateless:
    """Serves clients of the stateless era, whichever era the upstream is of."""

    def __init__(
        self, bridged: Bridged, extension: Extension, subscribing: Subscribing, infos: Infos
    ) -> None:
        self._bridged = bridged
        self._infos = infos
        self._ways: Mapping[str, Way] = {
            "server/discover": self._discover,
            "tools/call": bridged.call_tool,
            "tasks/get": extension.get,
            "tasks/update": extension.update,
            "tasks/cancel": extension.cancel,
            "subscriptions/listen": subscribing.listen,
        }

    async def take(self, visit: Visit) -> Outbound:
        """Answer one request; raise `Refusal` with the HTTP status that the transport text has for it."""
        try:
            return await self._take(visit)
        except UpstreamLost as lost:
            raise in_its_codes(unavailable(lost)) from lost
        except StoreAway as away:
            raise store_away(f"{visit.request.method} cannot be answered now") from away
        except Refusal as refusal:
            in_its_codes(refusal)
            raise

    async def _take(self, visit: Visit) -> Outbound:
        request = visit.request
        if request.kind != "request":
            # The era has no notification of a client's over HTTP; one that comes is taken and forgotten.
            return Answer(202)
        params = members(request.params)
        if visit.inbound.verb == "POST":
            check_single(visit.inbound.headers)
            check_headers(request, visit.inbound.header, params)
        meta = read_meta(request, SUPPORTED, params)
        if request.method in GONE:
            raise Refusal(METHOD_NOT_FOUND, f"Method not found: {request.method}", status=404)
        caller = Caller(visit.principal, meta.capabilities, meta.info, meta.log_level)
        asked = Asked(visit, meta, caller, to_upstream(visit.inbound.headers))
        return await self._ways.get(request.method, self._bridged.plain)(asked)

    async def _discover(self, asked: Asked) -> Outbound:
        visit = asked.visit
        opened = await visit.served.crossing.opened(asked.caller, asked.headers)
        self._infos.learn(visit.served.name, opened)
        found = response(visit.request.id or dump(None), discovered(opened, SUPPORTED, DISCOVERY_MS))
        return json_answer(visit.served.dialects["c"].advertise(found, visit.offer))
