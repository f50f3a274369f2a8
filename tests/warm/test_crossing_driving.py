"""Tools that run as tasks of their upstream: `mcp` 1.x, server-everything, and scripted ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.aio.clock import Clock, SystemClock
from gateway.aio.spawn import Crew
from gateway.crossing.driving import DrivingChannel
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.auto import build
from gateway.upstream.options import CommandOptions, UrlOptions
from gateway.upstream.port import Channel, Placed, place_of
from tests.processes import Process
from tests.tools import venv_python
from tests.upstreams import everything_command, read_runs
from tests.warm.native_world import HEADERS, Json, answer, call, cancelled, event, first, message, tool
from tests.warm.raw_servers import LeapClock, Play, RawServer, Request, plain, serve, stream_head, until

CAN: Json = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
OPENING = message(
    "i",
    "initialize",
    protocolVersion="2025-11-25",
    capabilities=CAN,
    clientInfo={"name": "t", "version": "1"},
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
VERSION = [("mcp-protocol-version", "2025-11-25")]
POSTING = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
RELATED = "io.modelcontextprotocol/related-task"
NATIVE = [str(venv_python("mcp1")), "-m", "tests.fixture_servers.native_b_server"]


@asynccontextmanager
async def over_pipe(*command: str) -> AsyncGenerator[DrivingChannel]:
    upstream = build(CommandOptions(name="x", command=command), SystemClock())
    try:
        async with Crew("test") as crew:
            assert upstream.links is not None
            link, raw = await upstream.links.open("t", OPENING, [])
            assert b'"tasks"' in raw
            await link.send(INITIALIZED, [])
            yield DrivingChannel(link, SystemClock(), crew)
    finally:
        await upstream.close()


@asynccontextmanager
async def over_http(url: str) -> AsyncGenerator[DrivingChannel]:
    upstream = build(UrlOptions(name="x", url=url), SystemClock())
    try:
        async with Crew("test") as crew:
            assert upstream.http is not None
            accept = [
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ]
            reply = await upstream.http.forward("POST", accept, OPENING)
            await reply.read(100_000)
            channel = upstream.http.channel(reply.header("mcp-session-id"), VERSION)
            await channel.send(INITIALIZED, VERSION)
            yield DrivingChannel(channel, SystemClock(), crew)
            await channel.close()
    finally:
        await upstream.close()


@asynccontextmanager
async def native(carrier: str, log: Path) -> AsyncGenerator[DrivingChannel]:
    if carrier == "stdio":
        async with over_pipe(*NATIVE, "stdio", "--log", str(log)) as made:
            yield made
        return
    with Process([*NATIVE, "http", "0", "--log", str(log)]) as process:
        url = (await asyncio.to_thread(process.wait_line, r"^ready (\S+)$"))[1]
        async with over_http(url) as made:
            yield made


@pytest.mark.parametrize("carrier", ["http", "stdio"])
async def test_a_tool_that_runs_as_a_task_alone_is_a_plain_call(carrier: str, tmp_path: Path) -> None:
    async with native(carrier, tmp_path / "log") as made:
        assert (await call(made, message(0, "ping")))[0]["result"] == {}
        (found,) = await call(made, tool(1, "only_as_task"))
        assert found == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {"content": [{"type": "text", "text": "Done as a task."}], "isError": False},
        }
        (failed,) = await call(made, tool("two", "fail"))
        assert failed["id"] == "two"
        assert failed["result"]["isError"] is True
        runs = [run["tool"] for run in read_runs(tmp_path / "log") if run["event"] == "start"]
        assert runs == ["only_as_task", "fail"]


@pytest.mark.parametrize("carrier", ["http", "stdio"])
async def test_what_a_task_asks_comes_as_a_server_request(carrier: str, tmp_path: Path) -> None:
    async with native(carrier, tmp_path / "log") as made:
        coming = made.exchange(tool(1, "ask_name"), HEADERS)
        asked = await first(coming)
        assert asked["method"] == "elicitation/create"
        assert RELATED not in asked["params"].get("_meta", {})
        await made.send(answer(asked, {"action": "accept", "content": {"name": "Ada"}}), HEADERS)
        last = await first(coming)
        assert "Ada" in last["result"]["content"][0]["text"]
        assert RELATED not in last["result"].get("_meta", {})


async def test_progress_of_a_task_goes_on_under_the_token_of_the_call(tmp_path: Path) -> None:
    async with native("stdio", tmp_path / "log") as made:
        *told, last = await call(made, tool(1, "slow_count", "p", seconds=0.4, steps=2))
        assert last["result"]["isError"] is False
        assert {one["params"]["progressToken"] for one in told} == {"p"}
        progress = [one["params"]["progress"] for one in told]
        assert progress == sorted(progress)
        assert progress


async def test_a_cancelled_call_is_a_cancelled_task(tmp_path: Path) -> None:
    async with native("stdio", tmp_path / "log") as made:
        coming = made.exchange(tool(1, "never", 1), HEADERS)
        calling = asyncio.get_running_loop().create_task(first(coming))
        await until(lambda: read_runs(tmp_path / "log"))
        await made.send(cancelled(1, reason="enough"), HEADERS)
        assert (await calling)["error"]["message"] == "The request was cancelled: enough"


async def test_server_everything_researches_for_a_plain_call() -> None:
    async with over_pipe(*everything_command()) as made:
        coming = made.exchange(
            tool(1, "simulate-research-query", "p", topic="tea", ambiguous=True), HEADERS
        )
        told: list[Json] = []
        while "result" not in (found := await first(coming)):
            if found.get("method") == "elicitation/create":
                assert RELATED not in found["params"].get("_meta", {})
                chosen = {"action": "accept", "content": {"interpretation": "technical"}}
                await made.send(answer(found, chosen), HEADERS)
            else:
                told.append(found)
        assert found["id"] == 1
        assert "tea" in found["result"]["content"][0]["text"]
        progress = [one["params"] for one in told if one["method"] == "notifications/progress"]
        assert [one["progress"] for one in progress] == list(range(1, len(progress) + 1))
        assert progress
        assert all(one["message"] for one in progress)


def state(status: str, **more: Any) -> Json:
    return {"taskId": "t-1", "status": status, "ttl": None, "pollInterval": 200, **more}


class Tasks:
    """A scripted upstream whose streams for `tasks/result` play one after the other."""

    def __init__(self, *results: Play, created: Json | None = None) -> None:
        self.results = list(results)
        self.created: Json = created or {"result": {"task": state("working", statusMessage="begun")}}
        self.found: Json = {"result": state("working")}
        self.sent: list[Json] = []

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        body: Json = json.loads(request.body)
        self.sent.append(body)
        found = {"tools/call": self.created, "tasks/get": self.found}.get(body.get("method", ""))
        if body.get("method") == "tasks/result":
            await (self.results.pop(0) if len(self.results) > 1 else self.results[0])(request, writer)
        elif "id" not in body or "method" not in body:
            writer.write(plain(b"", status="202 Accepted"))
        else:
            say(request, writer, found or {"result": {}})

    def of(self, method: str) -> list[Json]:
        return [one for one in self.sent if one.get("method") == method]


def say(request: Request, writer: asyncio.StreamWriter, found: Json) -> None:
    ident = json.loads(request.body)["id"]
    writer.write(plain(json.dumps({"jsonrpc": "2.0", "id": ident, **found}).encode()))


def ends(found: Json) -> Play:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        say(request, writer, found)

    return play


async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(stream_head())
    await writer.drain()
    writer.close()


async def waits(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(stream_head())


@asynccontextmanager
async def driving(
    play: Play, clock: Clock | None = None
) -> AsyncGenerator[tuple[DrivingChannel, RawServer]]:
    async with serve(play) as server, Crew("test") as crew:
        upstream = build(UrlOptions(name="x", url=server.url), SystemClock())
        assert upstream.http is not None
        try:
            inner: Channel = upstream.http.channel("s", VERSION)
            yield DrivingChannel(inner, clock or SystemClock(), crew), server
        finally:
            await crew.close()
            await upstream.close()


DONE: Json = {"result": {"content": [], "_meta": {RELATED: {"taskId": "t-1"}}}}


async def test_a_plain_result_is_the_answer() -> None:
    upstream = Tasks(waits, created={"result": {"content": [{"a": 1}]}})
    async with driving(upstream) as (made, _):
        assert await call(made, tool(1, "t")) == [
            {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"a": 1}]}}
        ]
        assert upstream.sent[0]["params"]["task"] == {}
    upstream = Tasks(waits, created={"error": {"code": -32601, "message": "never as a task"}})
    async with driving(upstream) as (made, _):
        assert (await call(made, tool(1, "t")))[0]["error"]["message"] == "never as a task"


async def test_I3_a_lost_stream_is_asked_for_again_and_the_tool_never_called_twice() -> None:
    upstream = Tasks(cut, cut, ends(DONE))
    clock = LeapClock()
    async with driving(upstream, clock) as (made, _):
        assert await call(made, tool(1, "t")) == [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]
        assert len(upstream.of("tools/call")) == 1
        assert len(upstream.of("tasks/result")) == 3
        assert clock.slept == [0.2, 0.2]
        assert {one["params"]["taskId"] for one in upstream.of("tasks/get")} == {"t-1"}


async def test_a_task_that_the_upstream_forgot_is_an_error() -> None:
    upstream = Tasks(cut)
    upstream.found = {"error": {"code": -32602, "message": "Task not found"}}
    async with driving(upstream, LeapClock()) as (made, _):
        (found,) = await call(made, tool(1, "t"))
        assert found["error"] == {"code": -32602, "message": "Task not found"}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (state("failed", statusMessage="it broke"), "it broke"),
        (state("cancelled"), "The upstream's task has cancelled"),
        (state("completed"), None),
    ],
)
async def test_a_failed_task_without_a_result_is_an_error_with_its_words(
    found: Json, words: str | None
) -> None:
    upstream = Tasks(ends({"result": {"_meta": {RELATED: {"taskId": "t-1"}}}}))
    upstream.found = {"result": found}
    async with driving(upstream) as (made, _):
        (answer,) = await call(made, tool(1, "t"))
        if words is None:
            assert answer["result"] == {}
        else:
            assert answer["error"] == {"code": -32603, "message": words}


async def test_an_upstream_that_stays_away_is_lost_I5() -> None:
    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        if json.loads(request.body)["method"] == "tools/call":
            await upstream(request, writer)
        else:
            writer.close()

    upstream = Tasks(cut)
    async with driving(play, LeapClock()) as (made, _):
        with pytest.raises(UpstreamLost, match="is away during a task"):
            await call(made, tool(1, "t"))


async def test_an_upstream_that_forgot_the_session_is_lost_at_once() -> None:
    async def gone(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(b"", status="404 Not Found"))

    async with driving(Tasks(gone)) as (made, _):
        with pytest.raises(UpstreamLost, match="no longer knows the session"):
            await call(made, tool(1, "t"))


async def test_related_metadata_is_of_the_upstream_alone() -> None:
    meta = {RELATED: {"taskId": "t-1"}}

    async def asks(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head())
        writer.write(
            event({"id": "e", "method": "elicitation/create", "params": {"message": "?", "_meta": meta}})
        )
        writer.write(
            event({"method": "notifications/tasks/status", "params": state("working", statusMessage="x")})
        )
        await until(lambda: [one for one in upstream.sent if one.get("id") == "e"])
        writer.write(event({"id": json.loads(request.body)["id"], **DONE}))

    upstream = Tasks(asks)
    async with driving(upstream) as (made, _):
        coming = made.exchange(tool(1, "t", "p"), HEADERS)
        begun, asked, told = [await first(coming) for _ in range(3)]
        assert begun["params"] == {"progressToken": "p", "progress": 1, "message": "begun"}
        assert asked["params"] == {"message": "?"}
        assert told["params"] == {"progressToken": "p", "progress": 2, "message": "x"}
        await made.send(answer(asked, {"action": "decline"}), HEADERS)
        assert (await first(coming))["result"] == {"content": []}
        (answered,) = [one for one in upstream.sent if one.get("id") == "e"]
        assert answered["result"] == {"action": "decline", "_meta": meta}


async def test_a_task_that_came_after_the_cancellation_is_cancelled_too() -> None:
    gate = asyncio.Event()

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        if json.loads(request.body).get("method") == "tools/call":
            await gate.wait()
        await upstream(request, writer)

    upstream = Tasks(waits)
    async with driving(play) as (made, server):
        calling = asyncio.get_running_loop().create_task(call(made, tool(1, "t")))
        await until(lambda: server.requests)
        await made.send(cancelled(1), HEADERS)
        assert (await calling)[-1]["error"]["message"] == "The request was cancelled"
        assert upstream.of("notifications/cancelled")[0]["params"]["requestId"] == 1
        gate.set()
        await until(lambda: upstream.of("tasks/cancel"))
        assert upstream.of("tasks/cancel")[0]["params"] == {"taskId": "t-1"}


async def test_I11_a_caller_that_left_can_still_cancel() -> None:
    upstream = Tasks(waits)
    async with driving(upstream) as (made, _):
        coming = made.exchange(tool(1, "t", 1), HEADERS)
        await first(coming)
        await coming.aclose()
        assert not upstream.of("tasks/cancel")
        await made.send(cancelled(1), HEADERS)
        assert upstream.of("tasks/cancel")


class Numbering:
    """A channel whose messages come in numbered events."""

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        ident = json.loads(message)["id"]
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}
        yield Placed(json.dumps(note).encode(), "e1")
        yield json.dumps({"jsonrpc": "2.0", "id": ident, "result": {"content": []}}).encode()

    async def send(self, message: bytes, headers: Headers) -> None:
        raise AssertionError(message)

    async def close(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_I3_places_of_a_part_of_the_call_are_none_of_the_whole(method: str) -> None:
    async with Crew("test") as crew:
        driven = DrivingChannel(Numbering(), SystemClock(), crew)
        found = [raw async for raw in driven.exchange(message("7", method, name="t"), HEADERS)]
    assert len(found) == 2
    assert [place_of(raw) for raw in found] == ["", ""]
