"""Dialect A: what a client may get wrong, and the code and words it hears (I12)."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.wire.scripted_upstream import tool
from tests.wire.seed_client import CREATED, TASK, Seed, new_id, refusal
from tests.wire.seed_world import House

pytest_plugins = ["tests.wire.seed_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
PARSE, INVALID, PARAMS = -32700, -32600, -32602
DEEP = 100_000


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", PARSE, "empty"),
        (b"not json", PARSE, ""),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', PARSE, ""),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', PARSE, ""),
        (b'{"jsonrpc":"2.0","id":1,"method":"p\xff\xfe"}', PARSE, "UTF-8"),
        (b'\xef\xbb\xbf"', PARSE, ""),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', PARSE, ""),
        (b"5", INVALID, "object"),
        (b"null", INVALID, "object"),
        (b'"text"', INVALID, "object"),
        (b"true", INVALID, "object"),
        (b"{}", INVALID, "jsonrpc"),
        (b'{"id":1,"method":"ping"}', INVALID, "jsonrpc"),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID, "jsonrpc"),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', INVALID, "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID, "id"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID, "id"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID, "id"),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', INVALID, "id"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', INVALID, "id"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', INVALID, "method"),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', INVALID, "method"),
        (b'{"jsonrpc":"2.0","id":1}', INVALID, ""),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":5}', (INVALID, PARAMS), "params"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', INVALID, "atch"),
        (b"[]", INVALID, "atch"),
    ],
)
async def test_a_body_that_is_no_request_is_refused_in_words(
    seed: Seed, body: bytes, code: int | tuple[int, ...], words: str
) -> None:
    exchange = await seed.send("POST", body)
    assert exchange.status == 400
    assert exchange.headers["content-type"].startswith("application/json")
    got, said = refusal(await exchange.json())
    assert got in (code if isinstance(code, tuple) else (code,))
    assert said
    assert words in said


@pytest.mark.parametrize("shape", [b"[" * DEEP, b'{"a":' * DEEP])
async def test_a_deeply_nested_body_is_refused(seed: Seed, shape: bytes) -> None:
    exchange = await seed.send("POST", shape)
    assert exchange.status == 400
    assert refusal(await exchange.json())[0] in (PARSE, INVALID)


@pytest.mark.parametrize("depth", [50, 240, 500, 5_000, 50_000])
async def test_nested_arguments_of_a_task_are_taken_whole_or_refused(
    house: House, seed: Seed, depth: int
) -> None:
    task = new_id()
    params = json.dumps({**tool(task), "_meta": {TASK: {"taskId": task}}})
    nest = "[" * depth + "]" * depth
    params = params.replace('"arguments": {', f'"arguments": {{"nest": {nest}, ', 1)
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    exchange = await seed.send("POST", body.encode())
    if exchange.status == 200 and exchange.is_stream:
        await exchange.notification(CREATED)
        if depth <= 240:
            (await house.upstream.called(task)).finish()
            await exchange.response(1)
        return
    assert depth > 240
    assert exchange.status == 400
    assert refusal(await exchange.json())[0] in (PARSE, INVALID, PARAMS)
    assert "error" in await seed.get(task)


async def test_a_batch_is_refused_where_the_version_has_none(house: House) -> None:
    for version in ("2025-06-18", "2025-11-25"):
        async with Seed(house.url(), None, version) as seed:
            exchange = await seed.post([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
            assert exchange.status == 400
            assert refusal(await exchange.json())[0] == INVALID


async def test_a_batch_of_2025_03_26_is_served(house: House) -> None:
    async with Seed(house.url(), None, "2025-03-26") as seed:
        exchange = await seed.post([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert exchange.status == 200
        assert await exchange.json() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("junk", "object"),
        (None, "object"),
        ([], "object"),
        (5, "object"),
        (True, "object"),
        ({}, "taskId"),
        ({"keepAlive": 5}, "taskId"),
        ({"taskId": None}, "taskId"),
        ({"taskId": ""}, "taskId"),
        ({"taskId": 5}, "taskId"),
        ({"taskId": ["x"]}, "taskId"),
        ({"taskId": "x" * 10_000}, "taskId"),
        ({"taskId": "two\nlines"}, "taskId"),
        ({"taskId": "cr\r"}, "taskId"),
        ({"taskId": "nul\0"}, "taskId"),
        ({"taskId": "bell\x07"}, "taskId"),
        ({"taskId": "lone \ud800"}, "taskId"),
        ({"taskId": "t", "keepAlive": -1}, "keepAlive"),
        ({"taskId": "t", "keepAlive": 0.5}, "keepAlive"),
        ({"taskId": "t", "keepAlive": "60000"}, "keepAlive"),
        ({"taskId": "t", "keepAlive": True}, "keepAlive"),
        ({"taskId": "t", "keepAlive": {}}, "keepAlive"),
    ],
)
async def test_bad_task_metadata_is_refused_and_nothing_runs(
    house: House, seed: Seed, metadata: object, words: str
) -> None:
    key = new_id()
    params = {**tool(key), "_meta": {TASK: metadata}}
    async with asyncio.timeout(2):
        exchange = await seed.post({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params})
    answer = await exchange.response(4)
    code, said = refusal(answer)
    assert code == PARAMS
    assert words in said
    assert len(said) < 500
    assert await seed.tasks() == {}
    assert not house.upstream.calls[key]


@pytest.mark.parametrize(
    "raw", [b"1e400", b"1e300", b"99999999999999999999999999", b"9007199254740993", b"1e3"]
)
async def test_a_huge_retention_is_capped_or_refused(house: House, seed: Seed, raw: bytes) -> None:
    task = new_id()
    text = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {**tool(task, "endless"), "_meta": {TASK: {"taskId": task, "keepAlive": 12345}}},
        }
    )
    exchange = await seed.send("POST", text.encode().replace(b"12345", raw))
    first = await exchange.next() or {}
    if first.get("method") != CREATED:
        assert refusal(first)[0] in (PARAMS, PARSE)
        return
    got = (await seed.get(task))["result"]
    assert got["keepAlive"] is None or (type(got["keepAlive"]) is int and got["keepAlive"] >= 1000)
    (await house.upstream.called(task)).finish()
    await seed.reach(task, "completed")
    assert "result" in await seed.delete(task)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/delete"])
@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"taskId": None},
        {"taskId": 5},
        {"taskId": {}},
        {"taskId": ["a"]},
        {"taskId": True},
        [],
        ["t"],
    ],
)
async def test_a_request_about_no_task_is_refused(seed: Seed, method: str, params: object) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    exchange = await seed.post(message if params is None else {**message, "params": params})
    answer = await exchange.response(1)
    code, said = refusal(answer)
    assert code in (PARAMS, INVALID)
    assert "taskId" in said or "params" in said


@pytest.mark.parametrize("task", ["", "x" * 10_000, "a\0b", "a\nb", "\ud800"])
async def test_a_strange_id_is_just_unknown(seed: Seed, task: str) -> None:
    for method in ("tasks/get", "tasks/result", "tasks/delete"):
        assert refusal(await seed.ask(method, {"taskId": task}))[0] == PARAMS


@pytest.mark.parametrize("session", ["nobody", "x" * 3000, "....", "ünï"])
async def test_an_unknown_session_is_answered_404_with_the_id(seed: Seed, session: str) -> None:
    exchange = await seed.send(
        "POST",
        b'{"jsonrpc":"2.0","id":"who","method":"tasks/list"}',
        {"Mcp-Session-Id": session},
    )
    assert exchange.status == 404
    answer = await exchange.json()
    assert answer["id"] == "who"
    assert "session" in refusal(answer)[1].lower()


async def test_a_forged_session_is_answered_404(seed: Seed) -> None:
    assert seed.session is not None
    for place in (1, len(seed.session) // 2, len(seed.session) - 2):
        letter = "A" if seed.session[place] != "A" else "B"
        forged = seed.session[:place] + letter + seed.session[place + 1 :]
        exchange = await seed.post(
            {"jsonrpc": "2.0", "id": 0, "method": "tasks/list"}, {"Mcp-Session-Id": forged}
        )
        assert exchange.status == 404
        assert (await exchange.json())["id"] == 0
        listening = await seed.send("GET", headers={"Mcp-Session-Id": forged})
        assert listening.status == 404


async def test_a_session_of_another_upstream_is_answered_404(house: House, seed: Seed) -> None:
    other = seed.twin(house.url("shared"))
    exchange = await other.post({"jsonrpc": "2.0", "id": 3, "method": "tasks/list"})
    assert exchange.status == 404
    assert (await exchange.json())["id"] == 3
    assert (await other.send("DELETE")).status == 404


async def test_a_request_of_nobody_finds_nothing(house: House) -> None:
    async with house.client() as seed:
        task = new_id()
        await seed.begin(task, tool(task))
        await house.upstream.called(task)
        for method in ("tasks/get", "tasks/result", "tasks/delete"):
            exchange = await seed.post(
                {"jsonrpc": "2.0", "id": 3, "method": method, "params": {"taskId": task}},
                {"Mcp-Session-Id": None},
            )
            assert exchange.status < 500
            assert "error" in await exchange.json()
        await seed.reach(task, "working")


async def test_a_lone_surrogate_in_the_arguments_hides_no_task(house: House, seed: Seed) -> None:
    task = new_id()
    async with asyncio.TaskGroup() as group:
        posting = group.create_task(seed.begin(task, tool(task, x="\ud800"), ident=1))
        call = await house.upstream.called(task)
        call.finish()
    await (await posting).response(1)
    assert posting.result().seen[0].get("method") == CREATED
    assert TASK not in call.meta
    assert call.message["params"]["arguments"]["x"] == "\ud800"


async def test_a_body_that_is_too_large_is_refused(seed: Seed) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"' + b"y" * (5 << 20) + b'"}}'
    exchange = await seed.send("POST", b"", {"Content-Length": str(len(body))})
    assert exchange.status == 413
    answer = await exchange.json()
    assert refusal(answer)[0] == INVALID
    assert "request_bytes" in refusal(answer)[1]
    assert answer["error"]["data"]["limit"] == "request_bytes"


async def test_a_wrong_protocol_version_is_refused(seed: Seed) -> None:
    exchange = await seed.post(
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/list"}, {"MCP-Protocol-Version": "junk"}
    )
    assert exchange.status == 400
    assert "error" in await exchange.json()


async def test_other_verbs_and_paths_are_refused(house: House, seed: Seed) -> None:
    assert (await seed.send("PUT", b"{}")).status == 405
    elsewhere = seed.twin(house.url("nowhere"))
    exchange = await elsewhere.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert exchange.status == 404
    assert "error" in await exchange.json()


async def test_duplicate_metadata_keys_are_no_way_around_the_checks(house: House, seed: Seed) -> None:
    key, one, two = new_id(), new_id(), new_id()
    meta = f'{{"{TASK}": {{"taskId": "{one}"}}, "{TASK}": {{"taskId": "{two}"}}}}'
    params = f'{{"name": "work", "arguments": {{"key": "{key}"}}, "_meta": {meta}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    exchange = await seed.send("POST", body.encode())
    first = await exchange.next() or {}
    if first.get("method") == CREATED:
        named = first["params"]["_meta"]["modelcontextprotocol.io/related-task"]["taskId"]
        assert list(await seed.tasks()) == [named]
        call = await house.upstream.called(key)
        assert TASK not in call.meta
        call.finish()
    else:
        refusal(first)
