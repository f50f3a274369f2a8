"""Changes that are told in a session of one replica, for subscribers at another (I6, I7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tests.redis_servers import RedisServer
from tests.upstreams import Running, start_fixture
from tests.wire.answers import Json
from tests.wire.era_upstream import EraUpstream
from tests.wire.era_world import Eras, configuration, deployed, meanwhile, new_key
from tests.wire.scripted_upstream import tool
from tests.wire.stateless_client import Stateless, Subscription

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_replica("says which replica does what"),
]
URI: Final = "test://static"
TOOLS: Final = "notifications/tools/list_changed"
UPDATED: Final = "notifications/resources/updated"
PROMPTS: Final = "notifications/prompts/list_changed"
BOTH: Final[Json] = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": [URI]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Eras]:
    """Serve servers of the official packages by two replicas; main is the scripted one."""
    scripted = EraUpstream()
    await scripted.start()
    place = tmp_path_factory.mktemp("servers")
    servers: dict[str, Running] = {
        "http": start_fixture("mcp1", "http", log=place / "http"),
        "events": start_fixture("mcp1", "http", "--events", log=place / "events"),
        "sse": start_fixture("mcp1", "sse", log=place / "sse"),
    }
    config = configuration(scripted, redis_url)
    config["upstreams"] |= {name: {"url": one.url} for name, one in servers.items()}
    try:
        async with deployed(scripted, config, tmp_path_factory.mktemp("real"), 2) as eras:
            yield eras
    finally:
        for one in servers.values():
            one.process.stop(2)
        await scripted.stop()


async def told(changes: Subscription) -> Json:
    message = await changes.next()
    assert message is not None
    return message


async def calls(eras: Eras, caller: Stateless, *sent: tuple[str, Json]) -> str:
    """Make a call in whose stream the upstream tells of changes; return its session."""
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, "plain"))) as asking:
        call = await eras.upstream.called(key)
        for method, params in sent:
            call.tell(method, params)
        call.finish()
        assert (await asking).notifications == []
    return call.session


async def test_I6_what_a_call_at_another_replica_changes_is_told(era_replicas: Eras) -> None:
    async with (
        era_replicas.client() as here,
        era_replicas.twin(here) as there,
        here.listen(BOTH) as changes,
    ):
        for _ in range(3):
            await calls(era_replicas, there, (TOOLS, {}), (UPDATED, {"uri": URI, "_meta": {"a": 1}}))
            assert (await told(changes))["method"] == TOOLS
            updated = await told(changes)
            assert updated["method"] == UPDATED
            assert (updated["params"]["uri"], updated["params"]["_meta"]["a"]) == (URI, 1)


async def test_I6_what_all_sessions_are_told_is_told_once(era_replicas: Eras) -> None:
    async with (
        era_replicas.client() as here,
        era_replicas.twin(here) as there,
        here.listen(BOTH) as changes,
        there.listen(BOTH) as others,
    ):
        sessions = {await calls(era_replicas, one) for one in (here, there)}
        assert len(sessions) == 2
        for _ in range(3):
            for session in sessions:
                era_replicas.upstream.beside(session, TOOLS)
            for one in (changes, others):
                assert (await told(one))["method"] == TOOLS
            for session in sessions:
                era_replicas.upstream.beside(session, PROMPTS)
            for one in (changes, others):
                assert (await told(one))["method"] == PROMPTS


async def test_I6_a_session_that_was_there_listens_once_somebody_subscribes_elsewhere(
    era_replicas: Eras,
) -> None:
    """A client that nothing can be asked of: its sessions need not listen for calls."""
    async with (
        era_replicas.client(capabilities={}) as here,
        era_replicas.twin(here, capabilities={}) as there,
    ):
        session = await calls(era_replicas, there)
        assert not era_replicas.upstream.listens(session)
        async with here.listen(BOTH) as changes:
            await era_replicas.upstream.until(lambda: era_replicas.upstream.listens(session))
            era_replicas.upstream.beside(session, TOOLS)
            assert (await told(changes))["method"] == TOOLS


async def test_I7_what_one_client_changes_is_not_told_to_another(era_replicas: Eras) -> None:
    async with (
        era_replicas.client() as here,
        era_replicas.client(replica=1) as stranger,
        era_replicas.client(None, replica=1) as nobody,
        era_replicas.twin(here) as there,
        here.listen(BOTH) as changes,
    ):
        for one in (stranger, nobody):
            await calls(era_replicas, one, (UPDATED, {"uri": URI}), (TOOLS, {}))
        await calls(era_replicas, there, (PROMPTS, {}))
        assert (await told(changes))["method"] == PROMPTS


async def test_I6_what_may_have_been_missed_is_said_to_have_changed(
    era_upstream: EraUpstream, own_redis: RedisServer, tmp_path: Path
) -> None:
    config = configuration(era_upstream, own_redis.url)
    async with (
        deployed(era_upstream, config, tmp_path, 2) as eras,
        eras.client() as here,
        here.listen(BOTH) as changes,
    ):
        # redis-py leaves most of its methods' types open.
        store: Any = Redis.from_url(own_redis.url)  # pyright: ignore[reportUnknownMemberType] as said
        try:
            assert await store.execute_command("CLIENT", "KILL", "TYPE", "pubsub") >= 2
        finally:
            await store.aclose()
        assert {(await told(changes))["method"] for _ in range(3)} == {TOOLS, PROMPTS, UPDATED}


@pytest.mark.parametrize("kind", ["http", "events", "sse"])
@pytest.mark.parametrize("capabilities", [None, {}], ids=["askable", "mute"])
async def test_I6_real_servers_changes_are_told(real: Eras, kind: str, capabilities: Json | None) -> None:
    more: Json = {} if capabilities is None else {"capabilities": capabilities}
    async with (
        real.client(name=kind, **more) as here,
        real.twin(here, kind, **more) as there,
        here.listen({"toolsListChanged": True, "resourceSubscriptions": ["test://watched"]}) as changes,
    ):
        for _ in range(2):
            assert (await there.call("add_tool", {"name": f"added_{new_key()}"})).text
            assert (await told(changes))["method"] == TOOLS
            if kind == "sse":
                # Such a server knows subscriptions of the link that it is asked on alone.
                continue
            assert (await there.call("touch", {"uri": "test://watched"})).text == "Told."
            assert (await told(changes))["params"]["uri"] == "test://watched"
