"""Which way a message takes, seen at the upstream and at the answer (I1, I7, I9, I12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.redis_servers import RedisServer, find_servers, start
from tests.warm.front_world import Answer, Door, opened
from tests.wire.raw_upstream import EVENTS, Request, http_request
from tests.wire.seed_client import CREATED, RELATED, TASK, WAIT, about, augmented

Json = dict[str, Any]
TASKS: Json = {
    "tools": {"never": "forbidden", "must": "required", "only": {"mode": "required", "refuse_plain": True}},
    "methods": {"resources/read": "optional"},
}


class World:
    """A door, and what its upstream has heard."""

    def __init__(self) -> None:
        self.heard: list[Json] = []
        self.headers: dict[str, str] = {}
        self.hold = asyncio.Event()
        self.hold.set()

    async def behave(self, request: Request) -> bool:
        self.heard.append(request.message)
        if request.verb == "GET":
            request.write(
                EVENTS + b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
            )
            await request.gone()
        if "params" in request.message and request.message.get("method") in (
            "tools/call",
            "resources/read",
        ):
            await self.hold.wait()
            request.result({"content": [], "saw": request.message["params"]})
            return True
        return False

    def calls(self) -> list[Json]:
        """Return the requests that the upstream was asked to run."""
        return [m for m in self.heard if m.get("method") in ("tools/call", "resources/read")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def door(world: World) -> AsyncIterator[Door]:
    async with opened(world.behave, tasks=TASKS) as one:
        world.headers = await one.session()
        world.heard.clear()
        yield one
        world.hold.set()


async def post(door: Door, message: object, headers: dict[str, str], **more: str) -> Answer:
    """Send one message."""
    return await door.ask("POST", json.dumps(message).encode(), {**headers, **more})


def messages(answer: Answer) -> list[Json]:
    """Return the messages of an answer, streamed or not."""
    if answer.headers.get("content-type") != "text/event-stream":
        return [answer.json] if answer.body else []
    lines = answer.body.decode().splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def call(tool: str, task: str | None = None, ident: int | str = 1) -> Json:
    """Return a call, as a task where it has an id."""
    params: Json = {"name": tool, "arguments": {"x": 1.0}}
    if task is not None:
        return augmented(task, params, "tools/call", ident)
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}


@pytest.mark.parametrize("tool", ["any", "must"])
async def test_a_call_with_task_metadata_becomes_a_task(world: World, door: Door, tool: str) -> None:
    found = messages(await post(door, call(tool, "t"), world.headers))
    assert [m.get("method") for m in found] == [CREATED, None]
    assert found[1]["result"]["_meta"] == {RELATED: {"taskId": "t"}}
    assert TASK not in json.dumps(world.calls())


async def test_a_call_whose_policy_forbids_tasks_goes_through_as_it_came(world: World, door: Door) -> None:
    (found,) = messages(await post(door, call("never", "t"), world.headers))
    assert found["result"]["saw"]["_meta"][TASK] == {"taskId": "t"}
    assert world.calls() == [call("never", "t")]
    assert (
        "error"
        in messages(
            await post(door, {**call("x"), "method": "tasks/get", "params": about("t")}, world.headers)
        )[0]
    )


async def test_a_call_that_must_be_a_task_works_for_clients_that_know_none(
    world: World, door: Door
) -> None:
    (found,) = messages(await post(door, call("must"), world.headers))
    assert "result" in found
    (found,) = messages(await post(door, call("only"), world.headers))
    assert found["error"]["code"] == -32601
    assert len(world.calls()) == 1


@pytest.mark.parametrize(
    ("method", "is_task"), [("resources/read", True), ("prompts/get", False), ("x/y", False)]
)
async def test_any_method_by_policy(world: World, door: Door, method: str, is_task: bool) -> None:
    message = augmented("t", {"uri": "a:b"}, method, 1)
    found = messages(await post(door, message, world.headers))
    assert [m.get("method") for m in found] == ([CREATED, None] if is_task else [None])
    assert (TASK in json.dumps(world.heard)) != is_task


async def test_I1_what_is_not_about_tasks_goes_through_byte_for_byte(world: World, door: Door) -> None:
    body = (
        b'{ "params":{"name":"never","n":1.0,"big":12345678901234567890},'
        b'"method":"tools/call",\t"id":"7","jsonrpc":"2.0"}'
    )
    answer = await door.ask("POST", body, world.headers)
    assert answer.json["id"] == "7"
    assert b"12345678901234567890" in answer.body
    assert world.calls()[0]["params"]["n"] == 1.0


@pytest.mark.parametrize("ident", [0, "0", -1, "", "7", 2**53])
async def test_46_a_cancel_of_an_unknown_request_goes_upstream_with_its_id(
    world: World, door: Door, ident: int | str
) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident}}
    assert (await post(door, message, world.headers)).status == 202
    assert world.heard == [message]


async def test_a_cancel_of_a_task_stays_here_and_reaches_the_upstream_under_the_calls_own_id(
    world: World, door: Door
) -> None:
    world.hold.clear()
    line = await door.line()
    line.write(http_request("POST", "/mcp", world.headers, json.dumps(call("any", "t", "7")).encode()))
    await door.upstream.until(lambda _: bool(world.calls()))
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "7"}}
    assert (await post(door, message, world.headers)).status == 202
    await door.upstream.until(lambda _: len(world.heard) == 2)
    told = world.heard[1]
    assert told["method"] == "notifications/cancelled"
    assert told["params"]["requestId"] == world.calls()[0]["id"]
    assert told["params"]["requestId"] != "7"


@pytest.mark.parametrize("ident", ["mtg-ask.nothing.1", "mtg-ask..", "mtg-ask." + "0" * 32 + ".1.1"])
async def test_an_answer_to_a_question_of_ours_that_nobody_asked_is_dropped(
    world: World, door: Door, ident: str
) -> None:
    assert (await post(door, {"jsonrpc": "2.0", "id": ident, "result": {}}, world.headers)).status == 202
    assert world.heard == []


@pytest.mark.parametrize("ident", [5, "5", "mtg-ask", "mtg-call.1"])
async def test_an_answer_to_the_upstreams_own_question_goes_through(
    world: World, door: Door, ident: int | str
) -> None:
    message: Json = {"jsonrpc": "2.0", "id": ident, "result": {"roots": []}}
    assert (await post(door, message, world.headers)).status == 202
    assert world.heard == [message]


@pytest.mark.parametrize("token", ["", "mtg1.", "mtg1.AAAA", "other", "mtg1." + "A" * 6_000])
async def test_26_an_unknown_session_is_404_in_json_with_the_requests_id(
    world: World, door: Door, token: str
) -> None:
    answer = await post(door, call("any", ident="x"), {"Mcp-Session-Id": token})
    assert answer.status == 404
    assert answer.json["id"] == "x"
    assert answer.error[0] == -32001
    assert world.heard == []


async def test_I7_a_session_of_somebody_else_is_no_way_to_his_tasks(world: World, door: Door) -> None:
    mine = await door.session({"Authorization": "Bearer mine"})
    messages(await post(door, call("any", "t"), mine))
    for stolen in ({**mine, "Authorization": "Bearer other"}, {"Mcp-Session-Id": mine["Mcp-Session-Id"]}):
        answer = await post(
            door, {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": about("t")}, stolen
        )
        assert "error" in answer.json


@pytest.mark.parametrize(
    ("version", "status"), [("2025-06-18", 200), ("junk", 400), ("2025-13-99x", 400), ("", 400)]
)
async def test_50_a_version_header_that_is_none_is_refused(
    world: World, door: Door, version: str, status: int
) -> None:
    answer = await post(door, call("never"), world.headers, **{"MCP-Protocol-Version": version})
    assert answer.status == status


async def test_a_deleted_session_is_gone_and_its_task_is_not(world: World, door: Door) -> None:
    headers = await door.session({"Authorization": "Bearer mine"})
    world.hold.clear()
    line = await door.line()
    line.write(http_request("POST", "/mcp", headers, json.dumps(call("any", "t")).encode()))
    await line.until(CREATED.encode())
    assert (await door.ask("DELETE", b"", headers)).status < 300
    assert (await post(door, call("never"), headers)).status == 404
    again = await door.session({"Authorization": "Bearer mine"})
    look = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": about("t")}
    assert (await post(door, look, again)).json["result"]["status"] == "working"
    world.hold.set()
    assert b'"result"' in await line.until(b"\r\n0\r\n\r\n")
    assert (await post(door, look, again)).json["result"]["status"] == "completed"


async def test_the_session_stream_merges_the_upstreams_events_with_the_gateways(
    world: World, door: Door
) -> None:
    line = await door.line()
    line.write(http_request("GET", "/mcp", world.headers))
    assert b": keep-alive" in await line.until(b"notifications/tools/list_changed")
    newer = await door.line()
    newer.write(http_request("GET", "/mcp", world.headers))
    await newer.until(b"notifications/tools/list_changed")
    await line.until(b"\r\n0\r\n\r\n")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    found = find_servers()
    if not found:
        pytest.skip("no Redis server here")
    one = start(next(iter(found.values())))
    yield one
    one.close()


@pytest.mark.parametrize("how", ["hangs", "is dead"])
async def test_I9_with_the_store_away_calls_run_plainly_or_are_refused_at_once(
    world: World, server: RedisServer, how: str
) -> None:
    store = {"url": server.url, "timeout": "150ms"}
    async with opened(world.behave, tasks=TASKS, store=store, secret="a secret of 16 characters") as door:
        headers = await door.session()
        messages(await post(door, call("any", "before"), headers))
        (server.hang if how == "hangs" else server.stop)()
        try:
            async with asyncio.timeout(WAIT / 2):
                (plain,) = messages(await post(door, call("any", "t"), headers))
                assert plain["result"]["saw"]["_meta"][TASK] == {"taskId": "t"}
                (must,) = messages(await post(door, call("must", "t"), headers))
                assert must["error"]["code"] == -32603
                assert "Task store unavailable" in must["error"]["message"]
                assert must["error"]["data"]["retryAfter"] > 0
                for method in ("tasks/get", "tasks/result", "tasks/delete"):
                    look = {"jsonrpc": "2.0", "id": 1, "method": method, "params": about("before")}
                    (refused,) = messages(await post(door, look, headers))
                    assert refused["error"]["code"] == -32603
                assert (await post(door, call("never"), headers)).status == 200
                fresh = await door.session()
                assert (await post(door, call("never"), fresh)).status == 200
                assert (await door.ask("DELETE", b"", fresh)).status < 300
        finally:
            server.wake() if how == "hangs" else server.start()


async def test_I11_a_client_that_takes_json_only_gets_the_response_alone(world: World, door: Door) -> None:
    answer = await post(door, call("any", "t"), {**world.headers, "Accept": "application/json"})
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json["result"]["_meta"] == {RELATED: {"taskId": "t"}}


async def test_a_client_that_takes_json_only_hears_that_its_request_was_cancelled(
    world: World, door: Door
) -> None:
    world.hold.clear()
    headers = {**world.headers, "Accept": "application/json"}
    asking = asyncio.create_task(post(door, call("any", "t", 7), headers))
    await door.upstream.until(lambda _: bool(world.calls()))
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    await post(door, message, world.headers)
    answer = await asking
    assert answer.json["id"] == 7
    assert answer.error == (-32603, "Request cancelled")


async def test_a_house_that_drains_takes_no_new_tasks_and_plain_calls_go_on(
    world: World, door: Door
) -> None:
    door.house.service.draining = True
    (refused,) = messages(await post(door, call("any", "t"), world.headers))
    assert "stopping" in refused["error"]["message"]
    assert (await post(door, call("never"), world.headers)).status == 200
