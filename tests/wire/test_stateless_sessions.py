"""The stateless era: the sessions that are held with an upstream of the other one (design section 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import POLICY, Eras, configuration, deployed, meanwhile, new_key
from tests.wire.scripted_upstream import Call, text, tool
from tests.wire.stateless_client import Reply, Stateless
from tests.wire.stateless_rules import ALL

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def narrow(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Eras]:
    """Serve with two sessions for each upstream."""
    main: Json = {"url": era_upstream.url, "tasks": POLICY, "max_sessions": 2}
    upstreams: Json = {
        "main": main,
        "idle": {**main, "max_sessions": 10, "idle": "1s"},
    }
    config = configuration(era_upstream, "memory://", upstreams=upstreams)
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("narrow")) as eras:
        yield eras


async def session_of(eras: Eras, caller: Stateless, tasks: bool | None = None) -> str:
    """Make a call and return the upstream's session that it went through."""
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"), tasks=tasks)) as asking:
        call = await eras.upstream.called(key)
        call.finish(text("done"))
        assert (await asking).text == "done"
    return call.session


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_requests_of_one_client_share_a_session(eras: Eras, caller: Stateless) -> None:
    first = await session_of(eras, caller)
    assert await session_of(eras, caller) == first
    # What becomes a task is between client and gateway: the upstream does not hear of it.
    assert await session_of(eras, caller, tasks=False) == first
    opening = eras.upstream.opening(first)
    assert opening.headers["authorization"] == caller.authorization
    assert opening.message["params"]["protocolVersion"] == "2025-11-25"
    assert opening.message["params"]["clientInfo"] == {"name": "stateless", "version": "1"}


async def test_I7_two_principals_never_share_a_session(eras: Eras) -> None:
    found: dict[str, str | None] = {}
    for authorization in ("Bearer one", "Bearer two", "Basic one", None, "Bearer on", "bearer one"):
        async with eras.client(authorization) as caller:
            session = await session_of(eras, caller)
            assert session not in found
            found[session] = authorization
    for session, authorization in found.items():
        sent = {one.headers.get("authorization") for one in eras.upstream.posts if one.session == session}
        assert sent == {authorization}


@pytest.mark.parametrize("header", ["Cookie", "X-Api-Key", "X-Tenant-Id", "X-Auth-Token"])
@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_I7_other_credentials_make_other_sessions(eras: Eras, header: str) -> None:
    sessions: list[str] = []
    async with eras.client("Bearer the same") as caller:
        for content in ("a", "b", "a"):
            key = new_key()
            headers = {header: content}
            async with meanwhile(caller.ask("tools/call", tool(key, "plain"), headers=headers)) as asking:
                call = await eras.upstream.called(key)
                call.finish()
                await asking
            assert eras.upstream.post_of(call).headers[header.lower()] == content
            sessions.append(call.session)
    assert sessions[0] == sessions[2] != sessions[1]


async def test_clients_of_other_capabilities_have_other_sessions(eras: Eras) -> None:
    found: dict[str, Json] = {}
    kinds: list[Json] = [ALL, {}, {"elicitation": {}}, {"roots": {}, "experimental": {"x": {}}}]
    for capabilities in kinds:
        async with eras.client("Bearer able", capabilities=capabilities) as caller:
            found[await session_of(eras, caller)] = capabilities
    assert len(found) == 4
    for session, capabilities in found.items():
        assert eras.upstream.opening(session).message["params"]["capabilities"] == capabilities


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_a_session_that_the_upstream_forgot_is_made_anew_and_the_call_runs_once(
    eras: Eras, caller: Stateless
) -> None:
    first = await session_of(eras, caller)
    await eras.upstream.forget(first)
    second = await session_of(eras, caller)
    assert second != first
    assert await session_of(eras, caller) == second


async def test_a_forgotten_session_is_made_anew_for_tasks_and_other_requests_too(
    eras: Eras, caller: Stateless
) -> None:
    first = await session_of(eras, caller)
    await eras.upstream.forget(first)
    assert (await caller.ask("resources/list")).result["resources"]
    second = await session_of(eras, caller)
    await eras.upstream.forget(second)
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "work"))
    (await eras.upstream.called(key)).finish(text("a task"))
    task = await caller.reach(reply.task_id, "completed")
    assert task["result"]["content"] == text("a task")["content"]
    assert len(eras.upstream.calls[key]) == 1


async def test_I3_a_call_that_was_lost_in_its_course_is_not_sent_again(
    eras: Eras, caller: Stateless
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        call.tell("notifications/message", {"level": "info", "data": 1})
        call.cut()
        reply = await asking
    assert reply.refusal[:2] == (200, -32603)
    assert "pstream" in reply.refusal[2]
    assert len(eras.upstream.calls[key]) == 1


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_I10_a_session_that_nobody_uses_makes_room_for_another(narrow: Eras) -> None:
    sessions: list[str] = []
    for number in range(4):
        async with narrow.client(f"Bearer room-{number}") as caller:
            sessions.append(await session_of(narrow, caller))
    assert len(set(sessions)) == 4
    await narrow.upstream.ends(sessions[0])
    await narrow.upstream.ends(sessions[1])
    assert not {sessions[2], sessions[3]} & narrow.upstream.deleted


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_I10_with_all_sessions_in_use_another_client_is_refused(narrow: Eras) -> None:
    keys = [new_key(), new_key()]
    async with AsyncExitStack() as stack:
        asking: list[asyncio.Task[Reply]] = []
        for key in keys:
            one = await stack.enter_async_context(narrow.client())
            asked = one.ask("tools/call", tool(key, "plain"))
            asking.append(await stack.enter_async_context(meanwhile(asked)))
            await narrow.upstream.called(key)
        late = await stack.enter_async_context(narrow.client())
        reply = await late.ask("tools/call", tool(new_key(), "plain"))
        assert reply.refusal[:2] == (503, -32603)
        assert reply.response["error"]["data"]["limit"] == "sessions"
        for key, task in zip(keys, asking, strict=True):
            (await narrow.upstream.called(key)).finish(text(key))
            assert (await task).text == key
        assert await session_of(narrow, late)


@pytest.mark.one_replica("each replica has upstream sessions of its own")
async def test_I10_a_held_call_keeps_its_session_and_gives_it_back(narrow: Eras) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(narrow.client())
        two = await stack.enter_async_context(narrow.client())
        calls: list[Call] = []
        for caller in (one, two):
            key = new_key()
            async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
                call = await narrow.upstream.called(key)
                call.ask()
                assert (await asking).result["resultType"] == "input_required"
                calls.append(call)
        late = await stack.enter_async_context(narrow.client())
        assert (await late.ask("tools/call", tool(new_key(), "plain"))).refusal[1] == -32603
        calls[0].finish()
        async with asyncio.timeout(10):
            reply = await late.ask("tools/list")
            while "error" in reply.response:
                reply = await late.ask("tools/list")
        calls[1].finish()


async def test_an_idle_session_ends(narrow: Eras) -> None:
    async with narrow.client(name="idle") as caller:
        session = await session_of(narrow, caller)
        await narrow.upstream.ends(session)
        assert await session_of(narrow, caller) != session


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_stop_ends_the_sessions(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, "memory://")
    async with deployed(era_upstream, config, tmp_path_factory.mktemp("ends")) as eras:
        async with eras.client() as caller:
            session = await session_of(eras, caller)
        assert await asyncio.to_thread(eras.gateways[0].process.stop) == 0
        await era_upstream.ends(session)


@pytest.mark.one_replica("ends or freezes the gateway that it speaks to")
async def test_a_stop_gives_up_the_calls_that_are_on_their_way(
    era_upstream: EraUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configuration(era_upstream, "memory://", drain="0s")
    place = tmp_path_factory.mktemp("busy")
    async with (
        deployed(era_upstream, config, place) as eras,
        eras.client() as caller,
        AsyncExitStack() as stack,
    ):
        calls: list[Call] = []
        for progress in (None, "mine"):
            key = new_key()
            calling = caller.call("plain", {"key": key}, progress=progress)
            await stack.enter_async_context(meanwhile(calling))
            calls.append(await era_upstream.called(key))
        calls[1].tell(
            "notifications/progress", {"progressToken": calls[1].meta["progressToken"], "progress": 1}
        )
        key = new_key()
        async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
            calls.append(await era_upstream.called(key))
            calls[2].ask()
            assert (await asking).result["resultType"] == "input_required"
        assert await asyncio.to_thread(eras.gateways[0].process.stop) == 0
        for call in calls:
            await call.cancelled()
