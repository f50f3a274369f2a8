"""FastMCP 4's task server (dialect C on 2026-07-28, and 2025-11-25 without tasks) behind the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.balancers import serve
from tests.processes import Process, free_port, wait_port
from tests.tools import venv_python
from tests.wire.bridge_world import POLICY, Bridge, configuration, words
from tests.wire.modern_words import META, Json
from tests.wire.seed_client import new_id, related_to
from tests.wire.stateless_rules import INVALID_PARAMS, accept

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

COUNT: Json = {"name": "slow_count", "arguments": {"seconds": 0.2}}


def greeting(asked: Json) -> Json:
    # Its older form asks for a value.
    return accept(**dict.fromkeys(asked["params"]["requestedSchema"]["required"], "Ada"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def native(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """Serve FastMCP's server."""
    place, port = tmp_path_factory.mktemp("native-c"), free_port()
    module = "tests.fixture_servers.native_c_server"
    server = Process([str(venv_python("fastmcp4")), "-W", "ignore", "-m", module, str(port)])
    await asyncio.to_thread(wait_port, server, port)
    config: Json = {"fm4": {"url": f"http://127.0.0.1:{port}/mcp", "tasks": POLICY}}
    gateway = serve(configuration(config, "memory://"), place)
    await asyncio.to_thread(gateway.wait)
    yield Bridge([gateway], {})
    await asyncio.to_thread(gateway.end)
    await asyncio.to_thread(server.stop, 2)


async def test_its_own_tasks_are_passed_through(native: Bridge) -> None:
    async with native.client_c("fm4") as client:
        assert f"{META}tasks" in (await client.discover())["capabilities"]["extensions"]
        task_id = (await client.call("slow_count", {"seconds": 0.2})).task_id
        done = await client.reach(task_id, "completed")
        assert words(done["result"]) == "Counted for 0.2 seconds."
        unknown = (await client.get("nowhere")).response["error"]
        # The words are the upstream's, not the gateway's.
        assert unknown["code"] == INVALID_PARAMS
        assert "Failed to retrieve task" not in unknown["message"]
        endless = (await client.call("never")).task_id
        await client.cancel(endless)
        await client.reach(endless, "cancelled")


async def test_input_for_its_own_tasks_is_passed_through(native: Bridge) -> None:
    async with native.client_c("fm4") as client:
        task_id = (await client.call("ask_name")).task_id
        task = await client.reach(task_id, "input_required")
        await client.update(task_id, {key: accept(name="Ada") for key in task["inputRequests"]})
        assert words((await client.reach(task_id, "completed"))["result"]) == "Hello, Ada!"


async def test_a_client_without_the_extension_is_answered_plainly(native: Bridge) -> None:
    async with native.client_c("fm4", tasks=False) as client:
        assert (await client.call("slow_count", {"seconds": 0.2})).text == "Counted for 0.2 seconds."
        asked = await client.call("ask_name", inputs={"elicitation/create": accept(name="Ada")})
        assert asked.text == "Hello, Ada!"


async def test_clients_of_the_handshake_era_have_tasks_too(native: Bridge) -> None:
    async with native.client_b("fm4", responder=greeting) as client:
        assert words((await client.ask("tools/call", COUNT))["result"]) == "Counted for 0.2 seconds."
        counted = await client.start("slow_count", {"seconds": 0.2}, ttl=60_000)
        assert words((await client.result(counted))["result"]) == "Counted for 0.2 seconds."
        asking = await client.start("ask_name", ttl=60_000)
        assert words((await client.result(asking))["result"]) == "Hello, Ada!"
        failing = await client.start("fail", ttl=60_000)
        failed = (await client.result(failing))["result"]
        assert (failed["isError"], words(failed)) == (True, "This tool always fails.")
        assert (await client.get(failing))["result"]["status"] == "failed"
        endless = await client.start("never", ttl=60_000)
        assert (await client.cancel(endless))["result"]["status"] == "cancelled"
    async with native.client_a("fm4") as client:
        task_id = new_id()
        exchange = await client.begin(task_id, COUNT, ident=1)
        answer = await exchange.response(1)
        assert (related_to(answer), words(answer["result"])) == (task_id, "Counted for 0.2 seconds.")
