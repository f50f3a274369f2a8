"""Clients of the handshake era over an upstream that is stateless only, over HTTP and on a pipe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.wire.bridge_world import Bridge, new_key, words
from tests.wire.modern_words import INFO, INSTRUCTIONS, META, VERSION, Json
from tests.wire.stateless_rules import ALL, accept, sampled
from tests.wire.tasks_b_client import TasksB

pytest_plugins = ["tests.wire.bridge_fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]

ROOTS: Json = {"roots": [{"uri": "file:///r"}]}


@pytest.fixture(scope="session", params=["modern", "pipe"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(loop_scope="session")
async def client(bridge: Bridge, name: str) -> AsyncIterator[TasksB]:
    async with bridge.client_b(name) as one:
        yield one


async def call(client: TasksB, tool: str, meta: Json | None = None, **arguments: Any) -> Json:
    params: Json = {"name": tool, "arguments": arguments}
    return await client.ask("tools/call", params if meta is None else {**params, "_meta": meta})


async def test_initialize_is_answered_from_discover(bridge: Bridge, client: TasksB, name: str) -> None:
    welcome = client.welcome
    assert welcome["protocolVersion"] == "2025-11-25"
    assert welcome["serverInfo"] == INFO
    assert welcome["instructions"] == INSTRUCTIONS
    assert client.session is not None
    capabilities = welcome["capabilities"]
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
    assert capabilities["experimental"] == {"x": {"y": 1}}
    assert "call" in capabilities["tasks"]["requests"]["tools"]
    assert not {"resultType", "supportedVersions", "ttlMs", "cacheScope", "_meta"} & set(welcome)
    discovered = bridge.seen(name).asked("server/discover")[-1]["params"]["_meta"]
    assert discovered[f"{META}clientInfo"] == {"name": "tasks-b", "version": "1"}
    assert discovered[f"{META}protocolVersion"] == VERSION


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2099-01-01"])
async def test_each_version_of_the_era_is_agreed_on(bridge: Bridge, version: str) -> None:
    async with bridge.client_b("modern", version=version) as client:
        assert client.version == ("2025-11-25" if version > VERSION else version)
        assert words((await call(client, "echo", text="hi"))["result"]) == "hi"


@pytest.mark.parametrize("upstream", ["gone", "fine", "streamed"])
async def test_an_upstream_may_refuse_the_handshake_as_it_likes(bridge: Bridge, upstream: str) -> None:
    async with bridge.client_b(upstream) as client:
        assert client.welcome["serverInfo"] == INFO
        assert words((await call(client, "echo", text="hi"))["result"]) == "hi"


async def test_lists_reads_prompts_and_completions_cross(client: TasksB) -> None:
    first = (await client.ask("tools/list"))["result"]
    second = (await client.ask("tools/list", {"cursor": first["nextCursor"]}))["result"]
    tools = {tool["name"]: tool["execution"]["taskSupport"] for tool in first["tools"]}
    assert tools["echo"] == "optional"
    assert second["tools"][-1]["name"] == "plain_echo"
    assert "nextCursor" not in second
    asked = {
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "test://static"},
        "prompts/list": {},
        "prompts/get": {"name": "greet"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "a", "value": "b"},
        },
    }
    for method, params in asked.items():
        result = (await client.ask(method, params))["result"]
        assert not {"resultType", "ttlMs", "cacheScope"} & set(result), (method, result)
    assert (await client.ask("resources/read", {"uri": "test://static"}))["result"] == {
        "contents": [{"uri": "test://static", "text": "static"}]
    }


async def test_results_and_errors_are_those_of_the_upstream(
    bridge: Bridge, client: TasksB, name: str
) -> None:
    text = new_key()
    assert (await call(client, "echo", text=text))["result"] == {
        "content": [{"type": "text", "text": text}]
    }
    (sent,) = bridge.seen(name).asked("tools/call", text=text)
    declared = sent["params"]["_meta"][f"{META}clientCapabilities"]
    # What the client can, and what the gateway does for it.
    assert declared == {**ALL, "extensions": {f"{META}tasks": {}}}
    assert (await call(client, "fail"))["result"]["isError"] is True
    refused = (await call(client, "refuse"))["error"]
    assert refused == {"code": -32050, "message": "Not today", "data": {"detail": [1, "two", None]}}
    assert (await call(client, "no such tool"))["error"]["code"] == -32602
    assert (await client.ask("x-vendor/unknown"))["error"]["code"] == -32601
    missing = (await client.ask("resources/read", {"uri": "test://none"}))["error"]
    assert (missing["code"], missing["data"]) == (-32602, {"uri": "test://none"})


@pytest.mark.parametrize("token", ["token", 7])
async def test_progress_comes_on_the_token_of_the_client(client: TasksB, token: str | int) -> None:
    answer = await call(client, "count", {"progressToken": token})
    assert words(answer["result"]) == "counted"
    told = [one.message["params"] for one in client.heard if "progress" in str(one.message.get("method"))]
    assert [one["progressToken"] for one in told] == [token] * 3
    assert [one["progress"] for one in told] == [1, 2, 3]


@pytest.mark.one_replica("the calls meet in one child; each replica has its own", only=("pipe",))
async def test_clients_with_the_same_ids_and_tokens_do_not_hear_each_other(
    bridge: Bridge, name: str
) -> None:
    async with bridge.client_b(name) as one, bridge.client_b(name) as other:
        keys = [new_key(), new_key()]
        calls = [
            asyncio.create_task(
                client.ask(
                    "tools/call",
                    {"name": "hold", "arguments": {"key": key}, "_meta": {"progressToken": 1}},
                    ident=5,
                )
            )
            for client, key in zip((one, other), keys, strict=True)
        ]
        for client in (one, other):
            await client.hears(lambda heard: heard.message.get("method") == "notifications/progress")
        for client, key in zip((other, one), reversed(keys), strict=True):
            await call(client, "release", key=key)
        answers = [await one for one in calls]
        assert [words(answer["result"]) for answer in answers] == [f"held {key}" for key in keys]
        for client in (one, other):
            told = [h for h in client.heard if h.message.get("method") == "notifications/progress"]
            assert len(told) == 1


async def test_the_log_level_is_kept_for_the_session(client: TasksB) -> None:
    def logged() -> list[str]:
        return [
            one.message["params"]["data"]
            for one in client.heard
            if one.message.get("method") == "notifications/message"
        ]

    await call(client, "chat")
    assert logged() == []
    refused = await client.ask("logging/setLevel", {"level": "loud"}, wrong=True)
    assert refused["error"]["code"] == -32602
    assert (await client.ask("logging/setLevel", {"level": "warning"}))["result"] == {}
    await call(client, "chat")
    assert logged() == ["a warning"]
    await client.ask("logging/setLevel", {"level": "debug"})
    await call(client, "chat")
    assert logged() == ["a warning", "a debug", "a warning"]


async def test_ping_is_answered_without_the_upstream(bridge: Bridge, client: TasksB, name: str) -> None:
    assert (await client.ask("ping"))["result"] == {}
    assert not bridge.seen(name).asked("ping")


ANSWERS: dict[str, dict[str, Json]] = {
    "ask_name": {"elicitation/create": accept(name="Ada")},
    "sample": {"sampling/createMessage": sampled("short")},
    "where": {"roots/list": ROOTS},
    "both": {"elicitation/create": accept(name="Ada"), "sampling/createMessage": sampled("short")},
    "sign_in": {"elicitation/create": {"action": "accept"}},
}


@pytest.mark.parametrize("tool", ANSWERS)
async def test_what_the_upstream_wants_is_asked_as_live_requests(
    bridge: Bridge, name: str, tool: str
) -> None:
    answers = ANSWERS[tool]

    def respond(asked: Json) -> Json:
        return answers[asked["method"]]

    async with bridge.client_b(name, responder=respond) as client:
        answer = await call(client, tool)
        given: Json = json.loads(words(answer["result"]))
        assert sorted(given.values(), key=str) == sorted(answers.values(), key=str)
        asked = [one for one in client.heard if "id" in one.message and "method" in one.message]
        assert {one.stream for one in asked} == {"tools/call"}
        assert len({json.dumps(one.message["id"]) for one in asked}) == len(answers)


async def test_a_user_who_declines_is_an_answer_and_an_error_is_a_cancel(client: TasksB) -> None:
    for refuse in (False, True):
        calling = asyncio.create_task(call(client, "ask_name"))
        asked = (await client.asked("elicitation/create")).message
        client.heard.clear()
        await (client.refuse(asked) if refuse else client.answer(asked, {"action": "decline"}))
        given = json.loads(words((await calling)["result"]))
        assert given == {"name": {"action": "cancel" if refuse else "decline"}}


async def test_a_model_that_refuses_ends_the_call_with_its_error(client: TasksB) -> None:
    calling = asyncio.create_task(call(client, "sample"))
    await client.refuse((await client.asked("sampling/createMessage")).message, -1, "no model today")
    assert (await calling)["error"] == {"code": -1, "message": "no model today"}


async def test_nobody_is_asked_who_did_not_say_that_he_can(bridge: Bridge, name: str) -> None:
    async with bridge.client_b(name, capabilities={}) as client:
        error = (await call(client, "ask_name"))["error"]
        assert error["data"] == {"requiredCapabilities": {"elicitation": {}}}
        assert not [one for one in client.heard if "id" in one.message and "method" in one.message]


async def test_a_cancelled_call_is_cancelled_at_the_upstream(
    bridge: Bridge, client: TasksB, name: str
) -> None:
    key = new_key()
    params: Json = {"name": "never", "arguments": {"key": key}, "_meta": {"progressToken": "p"}}
    calling = asyncio.create_task(client.ask("tools/call", params, ident="stop me"))
    await client.hears(lambda heard: heard.message.get("method") == "notifications/progress")
    await client.notify("notifications/cancelled", {"requestId": "stop me", "reason": "enough"})
    await bridge.seen(name).until(lambda: bridge.seen(name).cancelled(key=key))
    assert "error" in await calling


async def test_I11_a_client_that_hangs_up_cancels_nothing(
    bridge: Bridge, client: TasksB, name: str
) -> None:
    key = new_key()
    params: Json = {"name": "hold", "arguments": {"key": key}, "_meta": {"progressToken": "p"}}
    async with await client.post(client.request("tools/call", params)) as answer:
        await answer.next()
    # What was sent later is answered, so the hang-up had its chance to be taken for a cancellation.
    assert words((await call(client, "echo", text=key))["result"]) == key
    assert not bridge.seen(name).cancelled(key=key)
    await call(client, "release", key=key)


async def test_changes_come_on_the_get_stream(client: TasksB) -> None:
    uri = f"test://{new_key()}"
    await client.listen()
    assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    await call(client, "touch", uri=uri)
    changed = await client.hears(lambda one: "list_changed" in str(one.message.get("method")))
    updated = await client.hears(lambda one: "updated" in str(one.message.get("method")))
    assert (changed.stream, updated.stream) == ("get", "get")
    assert changed.message["method"] == "notifications/tools/list_changed"
    assert updated.message["params"] == {"uri": uri}
    assert (await client.ask("resources/unsubscribe", {"uri": uri}))["result"] == {}
    client.heard.clear()
    await call(client, "touch", uri=uri)
    await client.hears(lambda one: "list_changed" in str(one.message.get("method")))
    assert not [one for one in client.heard if "updated" in str(one.message.get("method"))]


async def test_what_changes_before_the_client_listens_is_kept_for_it(client: TasksB) -> None:
    await call(client, "touch", uri="test://a")
    await client.listen()
    changed = await client.hears(lambda one: "list_changed" in str(one.message.get("method")))
    assert changed.stream == "get"


async def test_a_session_that_was_ended_is_unknown(bridge: Bridge, client: TasksB) -> None:
    async with await client.send("DELETE") as answer:
        assert answer.status in (200, 204)
    async with await client.post(client.request("tools/list")) as answer:
        assert answer.status == 404


async def test_the_upstream_was_never_asked_to_shake_hands(
    bridge: Bridge, client: TasksB, name: str
) -> None:
    assert words((await call(client, "echo", text="x"))["result"]) == "x"
    later = [one for one in bridge.seen(name).lines if "jsonrpc" in one]
    # Over HTTP the first client's own `initialize` shows which era the upstream is of.
    assert len([one for one in later if one.get("method") == "initialize"]) <= len(later) // 2


async def test_I6_any_replica_serves_the_session(replicas: Bridge) -> None:
    async with replicas.client_b("modern") as client:
        other = client.twin(replicas.url("modern", 1))
        await client.ask("logging/setLevel", {"level": "debug"})
        assert words((await call(other, "echo", text="there"))["result"]) == "there"
        calling = asyncio.create_task(call(other, "ask_name"))
        asked = (await client.asked("elicitation/create")).message
        await other.answer(asked, accept(name="Ada"))
        assert json.loads(words((await calling)["result"])) == {"name": accept(name="Ada")}


async def test_I6_an_answer_may_come_to_another_replica(replicas: Bridge) -> None:
    async with replicas.client_b("modern") as client:
        other = client.twin(replicas.url("modern", 1))
        calling = asyncio.create_task(call(client, "ask_name"))
        asked = (await client.asked("elicitation/create")).message
        await other.answer(asked, accept(name="Ada"))
        assert json.loads(words((await calling)["result"])) == {"name": accept(name="Ada")}


async def test_I6_a_cancellation_may_come_to_another_replica(replicas: Bridge) -> None:
    key, seen = new_key(), replicas.seen("modern")
    async with replicas.client_b("modern") as client:
        other = client.twin(replicas.url("modern", 1))
        params: Json = {"name": "never", "arguments": {"key": key}}
        calling = asyncio.create_task(client.ask("tools/call", params, ident="stop"))
        await seen.until(lambda: seen.asked("tools/call", key=key))
        await other.notify("notifications/cancelled", {"requestId": "stop"})
        await seen.until(lambda: seen.cancelled(key=key))
        assert "error" in await calling
