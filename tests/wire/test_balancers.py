"""The examples for HAProxy and nginx, in front of replicas that do what a test wants to see handled.

What gateways do behind them is what all other wire tests show, with `GATEWAY_FRONT` (tests/balancers.py).
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.session.token import MAX_TOKEN
from tests.balancers import FRONTS, Balancer, command, configured
from tests.gateways import HOST
from tests.processes import free_port

pytestmark = pytest.mark.one_replica("has replicas of its own")

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"once"}}'
WAIT = 15.0
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stand:
    """A replica whose answers the test decides; without one it says its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port, self.admin_port = free_port(), free_port()
        self.ready = True
        self.answer: Answer | None = None
        self.taken = 0
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Listen on both ports."""
        for port, act in ((self.port, self._take), (self.admin_port, self._admin)):
            app = web.Application(client_max_size=2**26)
            app.router.add_route("*", "/{path:.*}", act)
            runner = web.AppRunner(
                app, access_log=None, max_field_size=2**14, shutdown_timeout=0.1, handler_cancellation=True
            )
            await runner.setup()
            await web.TCPSite(runner, HOST, port).start()
            self._runners.append(runner)

    async def stop(self) -> None:
        """Close both ports."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.taken += 1
        if self.answer is not None:
            return await self.answer(request)
        body = await request.read()
        told = {"X-Name": self.name, "X-Size": str(len(body))}
        return web.Response(text=request.headers.get("Mcp-Session-Id", ""), headers=told)

    async def _admin(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/readyz"
        return web.Response(status=200 if self.ready or "exclude" in request.query else 503)


class Scene:
    """Three stands behind a balancer, and a client."""

    def __init__(self, stands: list[Stand], balancer: Balancer, client: aiohttp.ClientSession) -> None:
        self.stands = stands
        self.balancer = balancer
        self.port = balancer.port
        self._client = client

    def post(
        self, body: bytes = BODY, **headers: str
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a POST; underscores in names of headers become hyphens."""
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.post(f"http://{HOST}:{self.port}/main/mcp", data=BytesIO(body), headers=spelled)

    async def who(self) -> str:
        """Return the name of the replica that answers next."""
        async with self.post() as answer:
            assert answer.status == 200, await answer.text()
            return answer.headers["X-Name"]

    @property
    def taken(self) -> int:
        """How many requests came to the replicas."""
        return sum(stand.taken for stand in self.stands)


@asynccontextmanager
async def played(kind: str, place: Path) -> AsyncGenerator[Scene]:
    stands = [Stand(name) for name in "abc"]
    balancer = Balancer(kind, stands, place)
    try:
        for stand in stands:
            await stand.start()
        await asyncio.to_thread(balancer.start)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(WAIT)) as client:
            yield Scene(stands, balancer, client)
    finally:
        await asyncio.to_thread(balancer.end)
        for stand in stands:
            await stand.stop()


@pytest.fixture(params=FRONTS)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with played(request.param, tmp_path) as scene:
        yield scene


@pytest.mark.parametrize("kind", FRONTS)
def test_the_example_is_good_without_a_warning(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "conf"
    file.write_text(configured(kind, free_port(), [Stand(name) for name in "abc"], tmp_path))
    done = subprocess.run(
        command(kind, file, check=True), capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower() + done.stdout.lower()


async def test_I6_each_request_goes_to_the_next_replica(scene: Scene) -> None:
    names = [await scene.who() for _ in range(9)]
    assert {names.count(name) for name in "abc"} == {3}
    assert all(one != other for one, other in pairwise(names))


async def test_the_longest_session_id_and_a_large_body_pass(scene: Scene) -> None:
    token, body = "t" * MAX_TOKEN, b"x" * (5 * 1024 * 1024)
    async with scene.post(body, Mcp_Session_Id=token, Authorization=f"Bearer {token}") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["X-Size"] == str(len(body))
        assert await answer.text() == token


async def test_the_longest_session_id_comes_back_in_an_answer(scene: Scene) -> None:
    async def opened(_request: web.Request) -> web.StreamResponse:
        return web.Response(headers={"Mcp-Session-Id": "t" * MAX_TOKEN})

    for stand in scene.stands:
        stand.answer = opened
    async with scene.post() as answer:
        assert (answer.status, answer.headers["Mcp-Session-Id"]) == (200, "t" * MAX_TOKEN)


async def test_I11_an_event_passes_before_the_next_is_there_and_a_disconnect_at_once(scene: Scene) -> None:
    read, closed = asyncio.Event(), asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number in range(3):
                await response.write(f"data: {number}\n\n".encode())
                await asyncio.wait_for(read.wait(), WAIT)
                read.clear()
            await asyncio.sleep(WAIT)
        finally:
            closed.set()
        return response

    for stand in scene.stands:
        stand.answer = stream
    async with asyncio.timeout(WAIT), scene.post() as answer:
        for number in range(3):
            assert await answer.content.readuntil(b"\n\n") == f"data: {number}\n\n".encode()
            read.set()
        answer.close()
        await closed.wait()


async def test_I3_a_post_that_a_replica_may_have_taken_is_not_sent_again(scene: Scene) -> None:
    async def drop(request: web.Request) -> web.StreamResponse:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    for stand in scene.stands:
        stand.answer = drop
    async with scene.post() as answer:
        assert answer.status in (502, 503)
    assert scene.taken == 1


async def test_I3_a_refusal_of_a_replica_is_the_answer(scene: Scene) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "busy"}, status=503, headers={"Retry-After": "7"})

    for stand in scene.stands:
        stand.answer = refuse
    async with scene.post() as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
        assert await answer.json() == {"error": "busy"}
    assert scene.taken == 1


async def test_a_replica_that_is_gone_costs_no_request(scene: Scene) -> None:
    assert {await scene.who() for _ in range(3)} == set("abc")
    await scene.stands[1].stop()
    assert {await scene.who() for _ in range(12)} == set("ac")


async def test_without_any_replica_the_answer_says_so_and_when_to_come_back(scene: Scene) -> None:
    for stand in scene.stands:
        await stand.stop()
    async with scene.post() as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        assert (await answer.json(content_type=None))["error"]["code"] == -32603


async def test_haproxy_sends_nothing_new_to_a_replica_that_is_not_ready(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT), played("haproxy", tmp_path) as scene:
        scene.stands[2].ready = False
        while {await scene.who() for _ in range(6)} != set("ab"):
            pass


async def test_I9_haproxy_goes_on_when_no_replica_has_its_store(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT), played("haproxy", tmp_path) as scene:
        for stand in scene.stands:
            stand.ready = False
        await asyncio.to_thread(scene.balancer.wait_line, "gateways has no server available")
        assert {await scene.who() for _ in range(9)} == set("abc")
