"""The operator's door: metrics, liveness, readiness.

It is a port of its own, so that what operators see need not be open to clients. Readiness says in words
what is wrong; the words never hold credentials.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from gateway.aio.clock import Clock
from gateway.observe.metrics import CONTENT_TYPE
from gateway.protocol.errors import GatewayError

Probe = Callable[[], Awaitable[str | None]]

PROBE_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 1.0
CHECKS: Final = frozenset({"store", "upstreams"})
_MAX_WORDS: Final = 200
# No upstream is called so.
_STORE: Final = "\0store"
_CREDENTIALS: Final = re.compile(r"//[^/@\s]*@")


@dataclass(frozen=True)
class Probes:
    """What readiness asks.

    A probe returns `None` where all is well and else what is wrong, in words; it may also raise.
    `Upstream.check` and `Store.ping` are probes as they are. `serving` tells whether clients are let in.
    """

    store: Probe
    upstreams: Mapping[str, Probe]
    draining: Callable[[], bool]
    serving: Callable[[], bool]


class AdminDoor:
    """Serves `/metrics`, `/healthz` and `/readyz`; `ready` is given the checks to leave out."""

    def __init__(
        self,
        render: Callable[[], Awaitable[bytes]],
        ready: Callable[[Set[str]], Awaitable[dict[str, Any]]],
    ) -> None:
        self._render = render
        self._ready = ready
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        return app

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, which is a free one where `port` is 0. Raises `OSError`."""
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, host, port).start()
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._render(), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, request: web.Request) -> web.Response:
        exclude = set(request.query.getall("exclude", []))
        if unknown := exclude - CHECKS:
            words = f"exclude knows {' and '.join(sorted(CHECKS))}, not {', '.join(sorted(unknown))}\n"
            return web.Response(status=400, text=words)
        found = await self._ready(exclude)
        return web.json_response(found, status=200 if found["ready"] else 503)


class Admin(AdminDoor):
    """The operator's door of one process."""

    def __init__(self, render: Callable[[], bytes], probes: Probes, clock: Clock) -> None:
        async def rendered() -> bytes:
            return render()

        super().__init__(rendered, self.readiness)
        self._probes = probes
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at = dict.fromkeys(CHECKS, float("-inf"))
        self._store = ""
        self._upstreams: dict[str, str] = {}

    async def readiness(self, exclude: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the readiness of this replica, which does not depend on the `CHECKS` in `exclude`.

        It is ready while it lets clients in, does not drain, and its store and an upstream answer: one
        upstream of several that is down must not take the others away. Answers are at most a second old.
        A balancer that sends nothing to replicas that are not ready excludes what all of them lose at the
        same time, so that plain traffic outlives the store.
        """
        checks = CHECKS - exclude
        async with self._lock:
            now = self._clock.monotonic()
            await self._ask({check for check in checks if now - self._asked_at[check] >= FRESH_SECONDS})
        draining, serving = self._probes.draining(), self._probes.serving()
        stored = "store" not in checks or self._store == "ok"
        reached = "upstreams" not in checks or not self._upstreams or "ok" in self._upstreams.values()
        found = {"store": self._store, "upstreams": self._upstreams}
        return {
            "ready": serving and not draining and stored and reached,
            **{name: words for name, words in found.items() if name in checks},
            "draining": draining,
            "serving": serving,
        }

    async def _ask(self, checks: Set[str]) -> None:
        probes = dict(self._probes.upstreams) if "upstreams" in checks else {}
        if "store" in checks:
            probes[_STORE] = self._probes.store
        words = await asyncio.gather(*(_words(probe) for probe in probes.values()))
        found = dict(zip(probes, words, strict=True))
        self._store = found.pop(_STORE, self._store)
        if "upstreams" in checks:
            self._upstreams = found
        self._asked_at |= dict.fromkeys(checks, self._clock.monotonic())


async def _words(probe: Probe) -> str:
    """Return `ok`, or what is wrong in words that an operator may see."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            words = await probe()
    except TimeoutError:
        words = f"no answer within {PROBE_SECONDS:g} s"
    except GatewayError as error:
        words = str(error) or type(error).__name__
    except Exception as error:  # noqa: BLE001  a probe that breaks is news for the operator, not a crash
        words = f"the check failed: {type(error).__name__}"
    return "ok" if words is None else _CREDENTIALS.sub("//***@", words)[:_MAX_WORDS]
