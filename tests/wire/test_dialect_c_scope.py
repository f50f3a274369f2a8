"""Dialect C: who sees a task, and what is left of one (ext-tasks "Security Considerations"; I7, I8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import NOT_FOUND, Eras, configuration, deployed, left_in, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import PAUSE, accept, retry

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def begun(eras: Eras, caller: Stateless, name: str = "work") -> tuple[str, Call]:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, name))
    return reply.task_id, await eras.upstream.called(key)


async def assert_foreign(thief: Stateless, task: str) -> None:
    """A task of somebody else is answered exactly like one that never was."""
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        answers: list[object] = []
        for wanted in (task, "f" * len(task)):
            params: dict[str, object] = {"taskId": wanted}
            if method == "tasks/update":
                params["inputResponses"] = {"x": accept(name="thief")}
            reply = await thief.ask(method, params)
            answers.append((reply.status, reply.response["error"]))
        assert answers[0] == answers[1], method


@pytest.mark.parametrize(
    ("owner", "thief"),
    [
        ("Bearer owner", None),
        ("Bearer owner", "Bearer thief"),
        (None, "Bearer thief"),
        ("Basic b3duZXI6eA==", "Basic dGhpZWY6eA=="),
    ],
)
async def test_I7_a_task_is_foreign_to_everybody_else(
    eras: Eras, owner: str | None, thief: str | None
) -> None:
    async with eras.client(owner) as one, eras.client(thief, replica=1) as two:
        task, call = await begun(eras, one)
        question = call.ask()
        await one.reach(task, "input_required")
        await assert_foreign(two, task)
        assert (await one.get(task)).result["status"] == "input_required"
        assert not question.is_answered
        assert not call.is_cancelled
        call.finish(text("secret"))
        await one.reach(task, "completed")
        await assert_foreign(two, task)


async def test_a_task_of_nobody_belongs_to_whoever_knows_its_id(eras: Eras) -> None:
    async with eras.client(None) as one, eras.client(None, replica=1) as two:
        task, call = await begun(eras, one)
        question = call.ask()
        (key,) = (await two.reach(task, "input_required"))["inputRequests"]
        await two.update(task, {key: accept(name="Ada")})
        assert (await question.answered())["result"] == accept(name="Ada")
        async with two.listen({"taskIds": [task]}) as changes:
            assert changes.acknowledged == {"taskIds": [task]}
            call.finish(text("known"))
            async for change in changes:
                if change["params"]["status"] == "completed":
                    break
        assert (await two.get(task)).result["result"]["content"] == text("known")["content"]


async def test_ids_are_unguessable_and_differ(eras: Eras) -> None:
    async with eras.client(None) as nobody, eras.client() as somebody:
        ids: set[str] = set()
        for caller in (nobody, somebody):
            for _ in range(10):
                task, call = await begun(eras, caller)
                call.finish()
                ids.add(task)
        heads = {task[:32] for task in ids}
        assert len(heads) == 20
        # 128 random bits in hexadecimal: no digit stands in all of them at one place.
        assert all(len({head[place] for head in heads}) > 1 for place in range(32))


async def test_a_shared_upstream_shows_tasks_to_all(eras: Eras) -> None:
    async with eras.client(None, "shared") as one, eras.client("Bearer x", "shared", 1) as two:
        task, call = await begun(eras, one)
        await two.cancel(task)
        await call.cancelled()
        await one.reach(task, "cancelled")


async def test_a_task_belongs_to_its_upstream(eras: Eras) -> None:
    async with eras.client("Bearer same") as one, eras.client("Bearer same", "hasty") as two:
        task, call = await begun(eras, one)
        await assert_foreign(two, task)
        call.finish()


async def test_a_trusted_header_names_the_principal_whatever_the_credential(
    era_upstream: EraUpstream, tmp_path: Path
) -> None:
    config = configuration(era_upstream, "memory://", identity={"header": "X-User"})
    async with deployed(era_upstream, config, tmp_path) as eras, eras.client("Bearer old") as one:
        key = new_key()
        made = await one.ask("tools/call", tool(key, "work"), headers={"X-User": "ada"})
        call = await era_upstream.called(key)
        async with eras.client("Bearer renewed") as two:
            about = {"taskId": made.task_id}
            reply = await two.ask("tasks/get", about, headers={"X-User": "ada"})
            assert reply.result["status"] == "working"
            for user in ("eve", None):
                reply = await two.ask("tasks/get", about, headers={"X-User": user})
                assert reply.refusal == NOT_FOUND
                other = new_key()
                asked = one.ask("tools/call", tool(other, "plain"), headers={"X-User": user})
                async with meanwhile(asked) as asking:
                    theirs = await era_upstream.called(other)
                    assert theirs.session != call.session
                    theirs.finish()
                    await asking
        call.finish()


@pytest.mark.parametrize("ident", ["x", "../../x", "a" * 100_000, "\0", "{}", "*", "é" * 40])
async def test_any_string_may_be_asked_for(caller: Stateless, ident: str) -> None:
    # A header cannot carry the longest of them; nor must it.
    reply = await caller.ask("tasks/get", {"taskId": ident}, headers={"Mcp-Name": None})
    assert reply.refusal == NOT_FOUND


@pytest.mark.parametrize("ident", [None, 1, True, [], {}, 1.5])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_task_id_that_is_no_string_is_refused(
    caller: Stateless, method: str, ident: object
) -> None:
    more: dict[str, object] = {"inputResponses": {}} if method == "tasks/update" else {}
    reply = await caller.ask(method, {"taskId": ident, **more}, wrong=True)
    assert reply.refusal[:2] == (200, -32602)
    assert (await caller.ask(method, more, wrong=True)).refusal[:2] == (200, -32602)
    assert (await caller.ask(method, {"taskId": "", **more}, wrong=True)).refusal[:2] == (200, -32602)


async def test_I8_a_task_is_kept_as_long_as_announced_and_no_longer(eras: Eras, caller: Stateless) -> None:
    begin = asyncio.get_running_loop().time()
    key = new_key()
    made = await caller.ask("tools/call", tool(key, "fleeting"))
    (await eras.upstream.called(key)).finish(text("soon gone"))
    await caller.reach(made.task_id, "completed")
    reply = await caller.get(made.task_id)
    async with asyncio.timeout(10):
        while "result" in reply.response:
            await asyncio.sleep(PAUSE)
            reply = await caller.get(made.task_id)
    assert asyncio.get_running_loop().time() - begin >= made.result["ttlMs"] / 1000
    assert reply.refusal[:2] == NOT_FOUND[:2]


async def test_I8_nothing_is_left_in_redis_of_tasks_and_of_calls_that_were_held(
    era_upstream: EraUpstream, redis_url: str, tmp_path: Path
) -> None:
    config = configuration(era_upstream, redis_url)
    prefix = config["store"]["prefix"]
    async with deployed(era_upstream, config, tmp_path, 2) as eras, eras.client() as here:
        assert await left_in(redis_url, prefix) == {}
        made = await here.ask("tools/call", tool(new_key(), "fleeting"))
        await here.cancel(made.task_id)
        held = new_key()
        async with meanwhile(here.ask("tools/call", tool(held, "plain"))) as asking:
            (call := await era_upstream.called(held)).ask()
            asked = (await asking).result
        assert await left_in(redis_url, prefix)
        again = {**tool(held, "plain"), **retry(asked, {"elicitation/create": accept(name="Ada")})}
        async with eras.twin(here) as there, meanwhile(there.ask("tools/call", again)) as asking:
            await era_upstream.hears(lambda m: m.get("result") == accept(name="Ada"), call.session)
            call.finish(text("thanks"))
            assert (await asking).text == "thanks"
        left = await left_in(redis_url, prefix)
        async with asyncio.timeout(10):
            while left:
                assert -1 not in left.values(), left
                await asyncio.sleep(PAUSE)
                left = await left_in(redis_url, prefix)


async def test_I8_a_held_call_that_nobody_came_back_to_is_gone_soon(
    era_upstream: EraUpstream, redis_url: str, tmp_path: Path
) -> None:
    config = configuration(era_upstream, redis_url)
    async with deployed(era_upstream, config, tmp_path) as eras, eras.client(name="hasty") as caller:
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
            (call := await era_upstream.called(key)).ask()
            await asking
        await call.cancelled()
        left = {"": 10**9}
        async with asyncio.timeout(10):
            while any(not 0 <= stays <= 60_000 for stays in left.values()):
                await asyncio.sleep(PAUSE)
                left = await left_in(redis_url, config["store"]["prefix"])
