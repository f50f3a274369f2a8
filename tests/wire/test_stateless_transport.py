"""The stateless era over HTTP: statuses, methods that are gone, both eras on one URL (streamable-http)."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.wire.answers import Json
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import text, tool
from tests.wire.seed_client import Seed
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import VERSION

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
GONE = [
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
]


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


@pytest.mark.parametrize("method", GONE)
async def test_methods_that_are_gone_are_404_and_reach_no_upstream(
    eras: Eras, caller: Stateless, method: str
) -> None:
    before = len(eras.upstream.asked(method))
    params = {"uri": "test://static", "level": "info", "taskId": "x"}
    reply = await caller.ask(method, params, wrong=True)
    assert reply.refusal[:2] == (404, -32601)
    assert len(eras.upstream.asked(method)) == before


@pytest.mark.parametrize("method", ["no/such", "tools/Call", "rpc.discover", "x" * 10_000])
async def test_an_unknown_method_is_404(eras: Eras, caller: Stateless, method: str) -> None:
    reply = await caller.ask(method, wrong=True)
    assert reply.refusal[:2] == (404, -32601)
    assert reply.headers["content-type"].startswith("application/json")


async def test_a_notification_is_accepted_without_a_body(caller: Stateless) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with await caller.send(json.dumps(note).encode(), caller.fields(note)) as answer:
        assert answer.status == 202
        assert await answer.text() == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"1.0","id":1,"method":"server/discover"}',
        b'{"jsonrpc":"2.0","id":null,"method":"server/discover"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}',
        b'{"jsonrpc":"2.0","id":{},"method":"server/discover"}',
        b'{"jsonrpc":"2.0","id":1,"method":1}',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":' + b"[" * 100_000,
    ],
)
async def test_what_is_no_request_is_refused(caller: Stateless, body: bytes) -> None:
    async with await caller.send(body, caller.fields({"method": "server/discover"})) as answer:
        found = json.loads(await answer.text())
    assert answer.status == 400
    assert found["error"]["code"] in (-32700, -32600, -32602)


async def test_a_batch_is_no_part_of_the_era(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    batch = [caller.request("tools/call", tool(key, "plain")), caller.request("tools/list")]
    fields = caller.fields({"method": "tools/call", "params": {"name": "plain"}})
    async with await caller.send(json.dumps(batch).encode(), fields) as answer:
        found = json.loads(await answer.text())
    assert answer.status == 400
    assert found["error"]["code"] == -32600
    assert key not in eras.upstream.calls


async def test_the_response_is_json_where_nothing_comes_before_it(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        (await eras.upstream.called(key)).finish()
        reply = await asking
    assert reply.headers["content-type"].startswith("application/json")
    assert "mcp-session-id" not in {name.lower() for name in reply.headers}


async def test_a_stream_is_not_buffered_and_ends_with_the_response(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "_meta": {"progressToken": 1}}
    async with meanwhile(caller.begin("tools/call", params)) as asking:
        call = await eras.upstream.called(key)
        call.tell("notifications/progress", {"progressToken": call.meta["progressToken"], "progress": 1})
        async with await asking as answer:
            assert answer.is_stream
            assert answer.headers["x-accel-buffering"] == "no"
            assert (await answer.next() or {})["method"] == "notifications/progress"
            call.finish(text("the end"))
            *_, last = await answer.rest()
    assert last["result"]["content"] == text("the end")["content"]
    assert answer.last_id is None


async def test_a_session_id_and_a_last_event_id_mean_nothing(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    headers = {"Mcp-Session-Id": "made up", "Last-Event-ID": "5"}
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"), headers=headers)) as asking:
        call = await eras.upstream.called(key)
        assert eras.upstream.post_of(call).headers["mcp-session-id"] != "made up"
        call.finish(text("as ever"))
        reply = await asking
    assert reply.text == "as ever"
    assert "mcp-session-id" not in {name.lower() for name in reply.headers}


async def test_a_foreign_origin_is_refused(eras: Eras, caller: Stateless) -> None:
    key = new_key()
    message = caller.request("tools/call", tool(key, "plain"))
    fields = caller.fields(message, {"Origin": "http://evil.example"})
    async with await caller.send(json.dumps(message).encode(), fields) as answer:
        assert answer.status == 403
    assert key not in eras.upstream.calls


async def test_both_eras_live_on_one_url(eras: Eras, caller: Stateless) -> None:
    async with Seed(caller.url, caller.authorization) as seed:
        one, two = new_key(), new_key()
        stream = await seed.begin(one, tool(one), ident=1)
        async with meanwhile(caller.ask("tools/call", tool(two, "plain"))) as asking:
            (await eras.upstream.called(two)).finish(text("stateless"))
            assert (await asking).text == "stateless"
        (await eras.upstream.called(one)).finish(text("handshake"))
        answer = await stream.response(1)
        assert answer["result"]["content"] == text("handshake")["content"]
        assert "resultType" not in answer["result"]
        assert "result" in await seed.ask("ping")


async def test_I6_each_request_may_come_to_any_replica(era_replicas: Eras) -> None:
    async with era_replicas.client() as here, era_replicas.twin(here) as there:
        for number in range(6):
            key = new_key()
            one = (here, there)[number % 2]
            async with meanwhile(one.ask("tools/call", tool(key, "plain"))) as asking:
                (await era_replicas.upstream.called(key)).finish(text(str(number)))
                assert (await asking).text == str(number)


async def test_many_requests_at_once_get_each_its_own_answer(eras: Eras, caller: Stateless) -> None:
    async def one(ident: object) -> None:
        assert isinstance(ident, int | str)
        key = new_key()
        async with meanwhile(caller.begin("tools/call", tool(key, "plain"), ident=ident)) as asking:
            (await eras.upstream.called(key)).finish(text(key))
            async with await asking as answer:
                assert (await answer.response())["result"]["content"] == text(key)["content"]

    # The same id from two clients, or from one that does not care, is no reason to mix them up.
    await asyncio.gather(*[one(ident) for ident in [1, 1, "1", 0, 7] * 6])


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream;q=0.5", "*/*"])
async def test_a_client_that_takes_json_alone_gets_the_response(
    eras: Eras, caller: Stateless, accept: str
) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "_meta": {"progressToken": 1}}
    async with meanwhile(caller.ask("tools/call", params, headers={"Accept": accept})) as asking:
        call = await eras.upstream.called(key)
        call.tell("notifications/progress", {"progressToken": call.meta["progressToken"], "progress": 1})
        call.finish(text("alone"))
        reply = await asking
    assert reply.text == "alone"
    if accept == "application/json":
        assert reply.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (-32002, -32602),
        (-32042, -32603),
        (-32001, -32603),
        (-32003, -32603),
        (-32050, -32603),
        (-32020, -32603),
        (-32010, -32010),
        (7, 7),
    ],
)
async def test_codes_that_the_era_gave_up_do_not_cross(
    eras: Eras, caller: Stateless, sent: int, seen: int
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        (await eras.upstream.called(key)).refuse(sent, "words", {"why": 1})
        reply = await asking
    error: Json = reply.response["error"]
    assert (error["code"], error["message"], error["data"]) == (seen, "words", {"why": 1})


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "PATCH"])
async def test_the_era_has_no_other_verbs_than_post(caller: Stateless, verb: str) -> None:
    fields = {"Accept": "text/event-stream", "MCP-Protocol-Version": VERSION}
    async with await caller.send(b"", fields, verb=verb) as answer:
        assert answer.status == 405
        assert "POST" in answer.headers["allow"]
