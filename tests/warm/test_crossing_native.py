"""A channel to stateless upstreams: the `mcp` package's, FastMCP's task server, and scripted ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.crossing.native import MAX_LEFT, StatelessChannel
from gateway.crossing.port import Caller
from gateway.crossing.roads import HttpRoad, LinkRoad
from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.upstream.http import Http
from gateway.upstream.options import UrlOptions
from tests.processes import Process, free_port, wait_port
from tests.tools import venv_python
from tests.warm.native_world import (
    CALLER,
    HEADERS,
    Json,
    answer,
    call,
    cancelled,
    event,
    first,
    message,
    real,
    scripted,
    tool,
)
from tests.warm.raw_servers import LeapClock, Play, RawServer, Request, serve, stream_head, until

EXTENSION = "io.modelcontextprotocol/tasks"
FORM: Json = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "?", "requestedSchema": {}},
}
SAMPLE: Json = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
ROOTS: Json = {"method": "roots/list"}
STATE = "\u00e9 \ud83d"
DONE: Json = {"result": {"resultType": "complete", "content": [], "ttlMs": 0}}


def capabilities(body: Json) -> Json:
    return body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]


def task(status: str, **more: Any) -> Json:
    kind = "task" if status == "created" else "complete"
    found = {"taskId": "t-1", "status": "working" if status == "created" else status, "ttlMs": None}
    return {"result": {"resultType": kind, **found, "pollIntervalMs": 200, **more}}


@asynccontextmanager
async def channel(
    play: Play, clock: Clock | None = None, caller: Caller = CALLER, *, drive: bool = False
) -> AsyncGenerator[tuple[StatelessChannel, RawServer]]:
    async with serve(play) as server, Crew("test") as crew:
        http = Http(UrlOptions(name="x", url=server.url), SystemClock())
        made = StatelessChannel(HttpRoad(http), caller, clock or SystemClock(), crew, drive=drive)
        try:
            yield made, server
        finally:
            await crew.close()
            await http.close()


def replies(script: Callable[[Json], Json | None]) -> Play:
    return scripted(lambda body, _: script(body))


async def test_a_request_is_stamped_and_named_in_its_headers() -> None:
    caller = Caller(
        None, b'{"extensions":{"%b":{},"x":{}}}' % EXTENSION.encode(), b'{"name":"n","version":"2"}'
    )
    async with channel(replies(lambda _: DONE), caller=caller) as (made, server):
        (found,) = await call(made, tool(7, "té", 5))
        assert found == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
        (sent,) = server.requests
        assert sent.headers["mcp-method"] == "tools/call"
        assert sent.headers["mcp-name"] == "=?base64?dMOp?="
        assert sent.headers["mcp-protocol-version"] == "2026-07-28"
        assert sent.headers["authorization"] == "Bearer x"
        meta = json.loads(sent.body)["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "n", "version": "2"}
        # What the client understands as a task of its own is none of the upstream's.
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {"extensions": {"x": {}}}
        assert meta["progressToken"] == 5


async def test_all_questions_are_asked_at_once_and_the_retry_carries_answers_and_state() -> None:
    def script(body: Json) -> Json:
        if "inputResponses" in body["params"]:
            return DONE
        wanted: Json = {"a": FORM, "b": SAMPLE}
        return {"result": {"resultType": "input_required", "inputRequests": wanted, "requestState": STATE}}

    async with channel(replies(script)) as (made, server):
        coming = made.exchange(tool(1, "t"), HEADERS)
        asked = {one["method"]: one for one in [await first(coming), await first(coming)]}
        assert len({one["id"] for one in asked.values()}) == 2
        sampled = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
        await made.send(answer(asked["sampling/createMessage"], sampled), HEADERS)
        # Nobody fills the form in: that has a result of its own.
        refusal = {"code": -1, "message": "no user here"}
        await made.send(answer(asked["elicitation/create"], error=refusal), HEADERS)
        assert (await first(coming))["result"] == {"content": []}
        begun, again = [json.loads(one.body) for one in server.requests]
        assert again["params"]["inputResponses"] == {"a": {"action": "cancel"}, "b": sampled}
        assert again["params"]["requestState"] == STATE
        assert again["id"] != begun["id"]
        assert again["params"]["_meta"] == begun["params"]["_meta"]


async def test_a_client_that_refuses_to_sample_ends_the_call_with_its_error() -> None:
    wanted: Json = {"a": SAMPLE, "b": FORM}
    script = replies(lambda _: {"result": {"resultType": "input_required", "inputRequests": wanted}})
    async with channel(script) as (made, server):
        coming = made.exchange(tool(1, "t"), HEADERS)
        sample, form = await first(coming), await first(coming)
        error = {"code": -1, "message": "the user said no", "data": [1]}
        await made.send(answer(sample, error=error), HEADERS)
        withdrawn = await first(coming)
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"] == {"requestId": form["id"]}
        assert await first(coming) == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert len(server.requests) == 1


async def test_an_upstream_that_only_has_state_is_asked_again_but_not_for_ever_I5() -> None:
    clock = LeapClock()
    script = replies(lambda _: {"result": {"resultType": "input_required", "requestState": "s"}})
    async with channel(script, clock) as (made, server):
        (found,) = await call(made, tool(1, "t"))
        assert found["error"]["code"] == -32603
        assert "asked for input 100 times" in found["error"]["message"]
        assert len(server.requests) == 100
        assert clock.slept[:3] == [0.05, 0.1, 0.2]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"resultType": "input_required"}, "neither inputRequests nor requestState"),
        ({"resultType": "odd"}, "'odd'"),
        ({"resultType": "input_required", "inputRequests": {"a": {"method": "x"}}}, "asks for something"),
    ],
)
async def test_what_the_text_does_not_allow_is_an_error_I12(result: Json, words: str) -> None:
    async with channel(replies(lambda _: {"result": result})) as (made, _):
        (found,) = await call(made, tool(1, "t"))
        assert found["id"] == 1
        assert found["error"]["code"] == -32603
        assert words in found["error"]["message"]


async def test_a_task_in_answer_to_what_cannot_be_one_is_an_error() -> None:
    async with channel(replies(lambda _: task("created"))) as (made, server):
        (found,) = await call(made, message(1, "prompts/get", name="p"))
        assert found["error"]["code"] == -32603
        assert len(server.requests) == 1


async def test_an_error_of_the_upstream_stays_what_it_is() -> None:
    error = {"code": -32602, "message": "Unknown tool", "data": {"a": 1}}
    async with channel(replies(lambda _: {"error": error})) as (made, _):
        assert await call(made, tool("x", "t")) == [{"jsonrpc": "2.0", "id": "x", "error": error}]


async def test_a_lost_upstream_is_lost_and_the_id_free_again() -> None:
    async def hangs_up(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with channel(hangs_up) as (made, _):
        for _ in range(2):
            with pytest.raises(UpstreamLost):
                await call(made, tool(1, "t"))
        assert made.busy == 0


async def never(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(stream_head() + event({"method": "notifications/progress", "params": {"progress": 1}}))


async def test_I11_a_caller_that_leaves_cancels_nothing() -> None:
    async with channel(never) as (made, server):
        coming = made.exchange(tool(1, "t"), HEADERS)
        await first(coming)
        await coming.aclose()
        assert made.busy == 1
        assert server.open == 1
        with pytest.raises(Refusal, match="in use"):
            await call(made, tool(1, "t"))
        await made.send(cancelled(1), HEADERS)
        await until(lambda: server.open == 0)
        assert made.busy == 0


async def test_calls_that_nobody_waits_for_are_bounded_I10() -> None:
    async with channel(never) as (made, _):
        for number in range(MAX_LEFT + 2):
            coming = made.exchange(tool(number, "t"), HEADERS)
            await first(coming)
            await coming.aclose()
        await until(lambda: made.busy == MAX_LEFT)


async def test_messages_wait_for_a_slow_caller_and_come_in_order() -> None:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head())
        for number in range(500):
            writer.write(event({"method": "notifications/message", "params": {"data": number}}))
        writer.write(event({"id": 1, "result": {"resultType": "complete"}}))

    async with channel(play) as (made, _):
        *logged, last = await call(made, tool(1, "t"))
        assert [one["params"]["data"] for one in logged] == list(range(500))
        assert last["result"] == {}


class Tasks:
    """A scripted upstream with a task: what each `tasks/get` finds, and what it was sent."""

    def __init__(self, *states: Json) -> None:
        self.states = list(states)
        self.sent: list[Json] = []

    def __call__(self, body: Json) -> Json | None:
        self.sent.append(body)
        match body["method"]:
            case "tools/call":
                return task("created", statusMessage="begun")
            case "tasks/get":
                return self.states.pop(0) if len(self.states) > 1 else self.states[0]
            case _:
                return {"result": {"resultType": "complete"}}

    def of(self, method: str) -> list[Json]:
        return [one["params"] for one in self.sent if one["method"] == method]


async def test_a_task_of_the_upstream_is_waited_for() -> None:
    inner: Json = {"resultType": "complete", "content": [], "isError": True}
    upstream = Tasks(
        task("working", statusMessage="begun", pollIntervalMs=10),
        task("working", statusMessage="half", pollIntervalMs=60_000),
        task("completed", statusMessage="over", result=inner),
    )
    clock = LeapClock()
    async with channel(replies(upstream), clock, drive=True) as (made, server):
        *told, last = await call(made, tool(1, "t", "p"))
        assert last == {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": True}}
        assert [one["params"] for one in told] == [
            {"progressToken": "p", "progress": 1, "message": "begun"},
            {"progressToken": "p", "progress": 2, "message": "half"},
        ]
        assert clock.slept == [0.2, 0.05, 10.0]
        assert all(capabilities(one)["extensions"] == {EXTENSION: {}} for one in upstream.sent)
        assert [one.headers.get("mcp-name") for one in server.requests] == ["t", "t-1", "t-1", "t-1"]
        assert len({one["id"] for one in upstream.sent}) == 4


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (task("failed", error={"code": -5, "message": "x"}), {"code": -5, "message": "x"}),
        (
            task("cancelled", statusMessage="by hand"),
            {"code": -32603, "message": "The upstream cancelled the task: by hand"},
        ),
        ({"error": {"code": -32602, "message": "gone"}}, {"code": -32602, "message": "gone"}),
    ],
)
async def test_a_task_that_ends_badly_is_an_error(state: Json, error: Json) -> None:
    async with channel(replies(Tasks(state)), LeapClock(), drive=True) as (made, _):
        assert await call(made, tool(1, "t")) == [{"jsonrpc": "2.0", "id": 1, "error": error}]


async def test_what_a_task_asks_for_is_asked_once_and_answered_by_an_update() -> None:
    asks = task("input_required", inputRequests={"a": FORM, "b": ROOTS})
    upstream = Tasks(asks)
    async with channel(replies(upstream), drive=True) as (made, _):
        coming = made.exchange(tool(1, "t"), HEADERS)
        form, roots = await first(coming), await first(coming)
        await made.send(answer(form, {"action": "accept", "content": {}}), HEADERS)
        await until(lambda: len(upstream.of("tasks/update")) == 1)
        await made.send(answer(roots, {"roots": []}), HEADERS)
        await until(lambda: len(upstream.of("tasks/update")) == 2)
        assert [one["inputResponses"] for one in upstream.of("tasks/update")] == [
            {"a": {"action": "accept", "content": {}}},
            {"b": {"roots": []}},
        ]
        upstream.states = [task("completed", result={})]
        # The same keys were seen again and not asked again: what comes next is the end.
        assert (await first(coming))["result"] == {}


async def test_what_a_task_wants_no_more_is_taken_back() -> None:
    upstream = Tasks(
        task("input_required", inputRequests={"a": FORM}), task("working"), task("completed", result={})
    )
    async with channel(replies(upstream), LeapClock(), drive=True) as (made, _):
        asked, withdrawn, last = await call(made, tool(1, "t"))
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert last["result"] == {}


async def test_a_task_whose_question_the_client_refuses_is_cancelled() -> None:
    upstream = Tasks(task("input_required", inputRequests={"a": ROOTS}))
    async with channel(replies(upstream), drive=True) as (made, _):
        coming = made.exchange(tool(1, "t"), HEADERS)
        error = {"code": -32601, "message": "no roots"}
        await made.send(answer(await first(coming), error=error), HEADERS)
        assert (await first(coming))["error"] == error
        assert upstream.of("tasks/cancel")[0]["taskId"] == "t-1"


async def test_a_cancelled_call_cancels_its_task() -> None:
    upstream = Tasks(task("working"))
    async with channel(replies(upstream), drive=True) as (made, server):
        coming = made.exchange(tool(1, "t", 3), HEADERS)
        await first(coming)
        await until(lambda: upstream.of("tasks/get"))
        await made.send(cancelled(1), HEADERS)
        assert (await first(coming))["error"]["message"] == "The request was cancelled"
        assert upstream.sent[-1]["method"] == "tasks/cancel"
        assert server.requests[-1].headers["mcp-name"] == "t-1"


async def test_I3_an_upstream_that_is_away_for_a_while_is_polled_on_and_not_called_again() -> None:
    away = 3

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal away
        if json.loads(request.body)["method"] == "tasks/get" and away:
            away -= 1
            writer.close()
        else:
            await replies(upstream)(request, writer)

    upstream = Tasks(task("completed", result={}))
    async with channel(play, LeapClock(), drive=True) as (made, _):
        assert (await call(made, tool(1, "t")))[-1]["result"] == {}
        assert len(upstream.of("tools/call")) == 1
        away = 100
        with pytest.raises(UpstreamLost):
            await call(made, tool(2, "t"))


@pytest.fixture(scope="module")
def fastmcp() -> Generator[str]:
    port = free_port()
    command = [str(venv_python("fastmcp4")), "-m", "tests.fixture_servers.native_c_server", str(port)]
    with Process(command) as process:
        wait_port(process, port)
        yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def driven(url: str) -> AsyncGenerator[StatelessChannel]:
    async with Crew("test") as crew:
        http = Http(UrlOptions(name="x", url=url), SystemClock())
        yield StatelessChannel(HttpRoad(http), CALLER, SystemClock(), crew, drive=True)
        await crew.close()
        await http.close()


async def test_fastmcp_tasks_are_driven(fastmcp: str) -> None:
    async with driven(fastmcp) as made:
        found = await asyncio.gather(
            call(made, tool(1, "slow_count", "p", seconds=0.2)),
            call(made, tool(2, "echo", message="x")),
            call(made, tool(3, "fail")),
            call(made, tool(4, "protocol_error")),
        )
        assert found[0][-1]["result"]["content"][0]["text"] == "Counted for 0.2 seconds."
        assert found[1][-1]["result"]["content"][0]["text"] == "Echo: x"
        assert found[2][-1]["result"]["isError"] is True
        assert found[3][-1]["error"]["code"] == -32050
        assert all("resultType" not in one[-1].get("result", {}) for one in found)


async def test_a_fastmcp_task_elicits_through_a_server_request(fastmcp: str) -> None:
    async with driven(fastmcp) as made:
        coming = made.exchange(tool(1, "ask_name"), HEADERS)
        asked = await first(coming)
        assert asked["method"] == "elicitation/create"
        await made.send(answer(asked, {"action": "accept", "content": {"name": "Ada"}}), HEADERS)
        assert (await first(coming))["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_a_fastmcp_task_is_cancelled(fastmcp: str) -> None:
    async with driven(fastmcp) as made:
        calling = asyncio.get_running_loop().create_task(call(made, tool(1, "never")))
        await until(lambda: made.busy)
        await made.send(cancelled(1), HEADERS)
        assert (await calling)[-1]["error"]["code"] == -32603


async def test_arguments_are_mirrored_into_headers_where_the_upstream_wants_that() -> None:
    async with real("http") as upstream, Crew("test") as crew:
        assert upstream.http is not None
        made = StatelessChannel(HttpRoad(upstream.http), CALLER, SystemClock(), crew)
        (found,) = await call(made, tool(1, "mirror", region="Zürich"))
        assert found["result"]["content"][0]["text"] == "in Zürich"
        (found,) = await call(made, tool(2, "mirror"))
        assert found["result"]["content"][0]["text"] == "in None"


async def test_callers_that_share_a_link_do_not_hear_each_other() -> None:
    async with real("stdio") as upstream, Crew("test") as crew:
        assert upstream.links is not None
        stamp = StatelessChannel(None, CALLER, SystemClock(), crew).stamp  # pyright: ignore[reportArgumentType]
        link, _ = await upstream.links.open("t", stamp(message(0, "server/discover")), [])
        road = LinkRoad(link)
        callers = [StatelessChannel(road, CALLER, SystemClock(), crew) for _ in range(3)]
        found = await asyncio.gather(*(call(one, tool(1, "count", 1)) for one in callers))
        for one in found:
            assert [step["params"]["progress"] for step in one[:-1]] == [1, 2, 3]
            assert {step["params"]["progressToken"] for step in one[:-1]} == {1}
            assert one[-1]["id"] == 1
