"""SIGHUP: a new configuration without a dropped connection or task; a bad one changes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateways import Gateway
from tests.wire.answers import Json
from tests.wire.scripted_upstream import Upstream, text
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import TasksB
from tests.wire.tasks_b_world import configuration, credential, refusal, served, without_meta

pytest_plugins = ["tests.wire.tasks_b_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
SERVED = "the new configuration is served; upstreams added: {}; changed: {}; removed: {}"
REFUSED = "the new configuration is refused, the old one stays"


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(works: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with served(configuration(works, "memory://"), tmp_path_factory.mktemp("reload")) as gateways:
        yield gateways[0]


@pytest_asyncio.fixture(loop_scope="session")
async def client(gateway: Gateway) -> AsyncIterator[TasksB]:
    async with TasksB(gateway.url("main"), authorization=credential()) as one:
        yield one


def write(gateway: Gateway, **more: object) -> None:
    """Write another configuration, the old one but for some of its parts."""
    gateway.file.write_text(json.dumps({**gateway.config, **more}), encoding="utf-8")


async def reload(gateway: Gateway, words: str) -> None:
    """Have the file read anew and wait for what the log says of it."""
    gateway.process.send(signal.SIGHUP)
    await asyncio.to_thread(gateway.process.wait_line, words)


def upstreams_of(gateway: Gateway) -> Json:
    return json.loads(json.dumps(gateway.config["upstreams"]))


async def test_a_new_policy_holds_from_the_next_call_on(
    gateway: Gateway, client: TasksB, works: Upstream
) -> None:
    key = new_id()
    task = await client.start("work", {"key": key})
    call = await works.called(key)
    listener = await client.listen()
    changed = upstreams_of(gateway)
    changed["main"]["tasks"]["tools"]["work"] = "forbidden"
    write(gateway, upstreams=changed)
    await reload(gateway, SERVED.format("none", "main", "none"))
    response = await client.ask("tools/call", {"name": "work", "arguments": {"key": key}, "task": {}})
    assert refusal(response)[0] == -32601
    # The task of before runs on, and its questions reach the stream of before.
    question = call.ask()
    heard = await client.asked("elicitation/create")
    assert heard.stream == "get"
    await client.answer(heard.message, {"action": "decline"})
    await question.answered()
    call.finish(text("as before"))
    assert without_meta((await client.result(task))["result"]) == text("as before")
    listener.cut()


async def test_upstreams_come_and_go_while_a_task_of_one_runs(
    gateway: Gateway, client: TasksB, works: Upstream
) -> None:
    key = new_id()
    await client.start("work", {"key": key})
    call = await works.called(key)
    changed = upstreams_of(gateway)
    del changed["spoken"]
    changed["more"] = {"url": works.url}
    write(gateway, upstreams=changed)
    await reload(gateway, SERVED.format("more", "none", "spoken"))
    async with TasksB(gateway.url("more")) as fresh:
        assert "result" in await fresh.ask("ping")
    gone = client.twin(gateway.url("spoken"))
    answer = await gone.post(gone.request("ping"))
    assert answer.status == 404
    answer.cut()
    status, body = await asyncio.to_thread(gateway.admin, "/readyz")
    assert status == 200
    assert set(json.loads(body)["upstreams"]) == set(changed)
    _, metrics = await asyncio.to_thread(gateway.admin, "/metrics")
    assert 'requests_total{method="ping",status="200",upstream="more"} 1.0' in metrics
    call.finish()


async def test_an_upstream_at_another_address_serves_those_who_have_it_to_their_end(
    gateway: Gateway, client: TasksB, works: Upstream
) -> None:
    key, plain = new_id(), new_id()
    task = await client.start("work", {"key": key})
    call = await works.called(key)
    asked = client.ask("tools/call", {"name": "never_task", "arguments": {"key": plain}})
    waiting = asyncio.ensure_future(asked)
    plain_call = await works.called(plain)
    second = Upstream()
    await second.start()
    try:
        changed = upstreams_of(gateway)
        changed["main"]["url"] = second.url
        write(gateway, upstreams=changed)
        await reload(gateway, SERVED.format("none", "main", "none"))
        async with TasksB(gateway.url("main"), authorization=client.authorization) as fresh:
            other = new_id()
            await fresh.start("work", {"key": other})
            (await second.called(other)).finish()
        plain_call.finish(text("plain"))
        assert (await waiting)["result"] == text("plain")
        call.finish(text("from the old one"))
        assert without_meta((await client.result(task))["result"]) == text("from the old one")
    finally:
        await second.stop()


async def test_an_unchanged_child_lives_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its state is what tells: a session with a child that was started anew would have lost it."""
    child = {"command": [sys.executable, "-m", "gateway.demo"]}
    folder = tmp_path_factory.mktemp("reload-child")
    async with served({"upstreams": {"one": child}}, folder) as (gateway,):
        async with TasksB(gateway.url("one")) as client:
            before = await asyncio.to_thread(gateway.admin, "/metrics")
            write(gateway, upstreams={"one": {**child, "tasks": {"default": "forbidden"}}})
            await reload(gateway, SERVED.format("none", "one", "none"))
            assert "result" in await client.ask("ping")
            after = await asyncio.to_thread(gateway.admin, "/metrics")
        line = 'mcp_gateway_upstream_links{upstream="one"} 1.0'
        assert line in before[1]
        assert line in after[1]


@pytest.mark.parametrize(
    ("text_of_file", "words"),
    [
        ("upstreams: {main: {url: [}", "YAML"),
        ('{"upstreams": {"main": {"uri": "http://localhost:1/mcp"}}}', "uri"),
        (None, "listen.port"),
    ],
    ids=["no YAML", "unknown key", "another port"],
)
async def test_I12_a_bad_file_is_refused_with_words_and_the_old_one_stays(
    gateway: Gateway, client: TasksB, works: Upstream, text_of_file: str | None, words: str
) -> None:
    key = new_id()
    task = await client.start("work", {"key": key})
    call = await works.called(key)
    if text_of_file is None:
        write(gateway, listen={"host": "127.0.0.1", "port": gateway.port + 1})
    else:
        gateway.file.write_text(text_of_file, encoding="utf-8")
    await reload(gateway, REFUSED)
    assert words in gateway.process.text.split(REFUSED)[1]
    call.finish(text("as before"))
    assert without_meta((await client.result(task))["result"]) == text("as before")
    _, metrics = await asyncio.to_thread(gateway.admin, "/metrics")
    assert 'mcp_gateway_config_reloads_total{outcome="refused"} 1.0' in metrics
    # And a good one is taken after it.
    write(gateway, drain="2s")
    await reload(gateway, SERVED.format("none", "none", "none"))


async def test_other_bounds_hold_from_now_on(gateway: Gateway, client: TasksB, works: Upstream) -> None:
    keys = [new_id(), new_id()]
    await client.start("work", {"key": keys[0]})
    call = await works.called(keys[0])
    write(gateway, limits={"tasks_per_scope": 1, "request_bytes": "2KiB"})
    await reload(gateway, SERVED.format("none", "none", "none"))
    response = await client.ask("tools/call", {"name": "work", "arguments": {"key": keys[1]}, "task": {}})
    assert "tasks_per_scope (1)" in refusal(response)[1]
    answer = await client.post(
        client.request("tools/call", {"name": "work", "arguments": {"x": "y" * 3000}})
    )
    assert answer.status == 413
    answer.cut()
    call.finish()


async def test_metrics_count_the_children_of_all_configurations_together(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    child = {"command": [sys.executable, "-m", "gateway.demo"]}
    folder = tmp_path_factory.mktemp("reload-gauges")
    async with served({"upstreams": {"one": child}}, folder) as (gateway,):

        def links(name: str, number: int) -> bool:
            metrics = gateway.admin("/metrics")[1]
            return f'mcp_gateway_upstream_links{{upstream="{name}"}} {number}.0' in metrics

        async with TasksB(gateway.url("one")) as older:
            assert "result" in await older.ask("ping")
            other = {**child, "env": {"ANOTHER": "1"}}
            write(gateway, upstreams={"one": other, "two": child})
            await reload(gateway, SERVED.format("two", "one", "none"))
            async with TasksB(gateway.url("one")) as newer, TasksB(gateway.url("two")) as second:
                for client in (newer, second):
                    assert "result" in await client.ask("ping")
                assert await asyncio.to_thread(links, "one", 2)
                assert await asyncio.to_thread(links, "two", 1)
