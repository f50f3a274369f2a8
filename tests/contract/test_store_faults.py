"""What a store can do to its clients: cut, pause, refuse, forget (I8, I9; design section 5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.protocol.errors import IllegalMove, StoreAway
from gateway.store.bus import RedisBus
from gateway.store.keys import Keys
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import Outcome, Task
from tests.contract.making import (
    DONE,
    LEASE_MS,
    OURS,
    ROOMY,
    SCOPE,
    create,
    key_of,
    new_task,
    pending,
    until,
)
from tests.redis_servers import RedisServer
from tests.troubled import Troubled

_KEY = key_of()
_TIMEOUT = 0.3


@pytest.fixture
async def way(server: RedisServer) -> AsyncIterator[Troubled]:
    """Return a way to a server of the test's own."""
    async with Troubled.to(server.url) as way:
        yield way


@pytest.fixture
async def store(way: Troubled) -> AsyncIterator[RedisStore]:
    """Return the store by that way."""
    store = open_store(way.url, timeout=_TIMEOUT)
    # Scripts that the server does not have yet would take a round trip more.
    await create(store, _KEY, status="completed")
    await store.remove(_KEY)
    yield store
    await store.close()


@pytest.fixture
async def direct(server: RedisServer) -> AsyncIterator[Any]:
    """Return a client of the server that has no troubles; redis-py leaves most of its types open."""
    client: Any = Redis(unix_socket_path=server.url.removeprefix("unix://"))
    yield client
    await client.aclose()


async def _well(store: RedisStore) -> bool:
    try:
        await store.ping()
    except StoreAway:
        return False
    return True


async def _back(store: RedisStore) -> None:
    await until(lambda: _well(store), seconds=5, words="the store did not come back")


@pytest.mark.parametrize("reply_bytes", [0, 1, 30])
async def test_a_creation_whose_answer_is_lost_is_whole_and_can_be_taken_back(
    way: Troubled, store: RedisStore, direct: Any, reply_bytes: int
) -> None:
    await _back(store)
    way.cut_after(reply_bytes)
    with pytest.raises(StoreAway):
        await store.create(new_task(_KEY), "r1", LEASE_MS, ROOMY)
    await _back(store)
    task = await store.get(_KEY)
    assert task is not None and task.owner == "r1"
    assert await direct.zcard("mtg:leases") == 1
    assert await store.remove(_KEY) is not None
    assert not {key async for key in direct.scan_iter("*{*")}


@pytest.mark.parametrize("reply_bytes", [0, 10])
async def test_I4_an_end_whose_answer_is_lost_is_known_as_ones_own(
    way: Troubled, store: RedisStore, reply_bytes: int
) -> None:
    await create(store, _KEY, status="working")
    way.cut_after(reply_bytes)
    with pytest.raises(StoreAway):
        await store.finish(_KEY, OURS, DONE)
    await _back(store)
    assert await store.finish(_KEY, OURS, Outcome(status="failed")) is None
    found = await store.outcome(_KEY)
    assert found is not None and (found[0].status, found[1]) == ("completed", DONE)


Step = Callable[[RedisStore], Awaitable[object]]
_STEPS: dict[str, Step] = {
    "start": lambda store: store.start(_KEY, OURS),
    "note": lambda store: store.note(_KEY, OURS, "half"),
    "ask": lambda store: store.ask(_KEY, OURS, pending("q2", b"8")),
    "renew": lambda store: store.renew([_KEY], "r1", LEASE_MS),
    "cancel": lambda store: store.cancel(_KEY, "stop"),
    "remove": lambda store: store.remove(_KEY),
    "end_session": lambda store: store.end_session("s1", 10_000),
    "page": lambda store: store.page(SCOPE, None, 10),
}


@pytest.mark.parametrize("name", list(_STEPS))
async def test_a_step_whose_answer_is_lost_may_be_repeated(
    way: Troubled, store: RedisStore, name: str
) -> None:
    await create(store, _KEY, status="input_required")
    way.cut_after(0)
    with pytest.raises(StoreAway):
        await _STEPS[name](store)
    await _back(store)
    with suppress(IllegalMove):
        await _STEPS[name](store)
    task = await store.get(_KEY)
    if name == "remove":
        assert task is None
        return
    assert task is not None
    assert task.status == ("cancelled" if name == "cancel" else "input_required")
    asked = {"ask": ["q1", "q2"], "cancel": []}.get(name, ["q1"])
    assert [one.relay_id for one in task.pending] == asked


async def test_a_store_that_is_down_is_not_stormed_and_is_used_again_at_once(
    way: Troubled, store: RedisStore
) -> None:
    await create(store, _KEY)
    bus = RedisBus(store.link, "r1")
    way.shut()
    before, began, ended = way.accepted, time.monotonic(), asyncio.Event()

    async def insist() -> None:
        while not ended.is_set():
            with suppress(StoreAway):
                await store.get(_KEY)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group, bus.watch(_KEY):
        for _ in range(300):
            group.create_task(insist())
        # The first tries of a connection that was well are quicker than those that follow.
        await until(lambda: _passed(began + 1.0))
        first, before = way.accepted - before, way.accepted
        await until(lambda: _passed(began + 4.0))
        later = way.accepted - before
        way.open_again()
        back = time.monotonic()
        await until(lambda: _well(store), seconds=20)
        ended.set()
    assert first < 25
    assert later / 3 < 10
    assert time.monotonic() - back < 10
    await bus.close()


async def _passed(when: float) -> bool:
    return time.monotonic() >= when


async def test_a_pause_longer_than_the_time_limit_ends_without_a_crowd(
    way: Troubled, store: RedisStore, direct: Any
) -> None:
    await create(store, _KEY)
    await direct.execute_command("CLIENT", "PAUSE", "1000", "ALL")
    before, began = way.accepted, time.monotonic()
    asked = await asyncio.gather(*(store.get(_KEY) for _ in range(500)), return_exceptions=True)
    assert all(isinstance(one, StoreAway) for one in asked)
    assert time.monotonic() - began < 2 * _TIMEOUT
    with pytest.raises(StoreAway, match=r"moment ago|did not answer within"):
        await store.get(_KEY)
    await _back(store)
    found = await asyncio.gather(*(store.get(_KEY) for _ in range(500)))
    assert all(isinstance(one, Task) for one in found)
    assert way.accepted - before <= 4


async def test_a_slow_store_is_slow_once_for_all_who_ask_at_the_same_time(way: Troubled) -> None:
    store = open_store(way.url, timeout=1.0)
    await create(store, _KEY, status="working")
    way.delay = 0.1
    began = time.monotonic()
    await asyncio.gather(
        *(store.get(_KEY) for _ in range(300)), store.outcome(_KEY), store.renew([_KEY], "r1", 5_000)
    )
    assert time.monotonic() - began < 1.0
    assert await store.finish(_KEY, OURS, DONE) is not None
    await store.close()


async def test_full_memory_refuses_creation_at_once_and_keeps_what_runs(
    store: RedisStore, direct: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await create(store, _KEY, status="working")
    await store.renew([_KEY], "r1", 500)
    await create(store, key_of("done"), status="completed")
    await direct.config_set("maxmemory", "1")
    for _ in range(3):
        with pytest.raises(StoreAway, match="its memory is full"):
            await store.create(new_task(key_of("t2")), "r1", LEASE_MS, ROOMY)
    assert await store.get(key_of("t2")) is None
    with pytest.raises(StoreAway, match="its memory is full"):
        await store.ping()
    # Its lease is kept, so that no other replica takes it.
    await store.renew([_KEY], "r1", LEASE_MS)
    assert await store.claim_lost("r2", LEASE_MS, 10) == []
    with pytest.raises(StoreAway, match="its memory is full"):
        await store.finish(_KEY, OURS, DONE)
    assert await store.outcome(key_of("done")) is not None
    assert await store.remove(key_of("done")) is not None
    await direct.config_set("maxmemory", "0")
    assert await store.finish(_KEY, OURS, DONE) is not None
    told = [record for record in caplog.records if "its memory is full" in record.message]
    assert len(told) == 1


async def test_a_primary_that_became_a_replica_is_told_and_left(store: RedisStore, direct: Any) -> None:
    await create(store, _KEY)
    await direct.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreAway, match="takes no writes"):
        await store.start(_KEY, OURS)
    with pytest.raises(StoreAway, match="takes no writes"):
        await store.ping()
    await direct.config_set("replica-serve-stale-data", "no")
    with pytest.raises(StoreAway, match="lost its primary"):
        await store.get(_KEY)
    await direct.execute_command("REPLICAOF", "NO", "ONE")
    assert await store.start(_KEY, OURS) is not None


async def test_a_failed_save_that_stops_writes_is_told(
    tmp_path: Path, server: RedisServer, store: RedisStore, direct: Any
) -> None:
    await create(store, _KEY)
    gone = tmp_path / "gone"
    gone.mkdir()
    with suppress(Exception):
        await direct.config_set("dir", str(gone))
    if (await direct.config_get("dir"))["dir"] != str(gone):
        pytest.skip("this server keeps its folder to itself")
    await direct.config_set("save", "3600 1")
    gone.rmdir()
    await direct.bgsave()

    async def failed() -> bool:
        info = await direct.info("persistence")
        return info["rdb_last_bgsave_status"] == "err"

    await until(failed)
    with pytest.raises(StoreAway, match="MISCONF"):
        await store.start(_KEY, OURS)
    with pytest.raises(StoreAway, match="MISCONF"):
        await store.ping()
    assert await store.get(_KEY) is not None
    await direct.config_set("stop-writes-on-bgsave-error", "no")
    assert await store.start(_KEY, OURS) is not None


async def test_a_login_or_a_permission_that_is_missing_is_told(server: RedisServer, direct: Any) -> None:
    await direct.execute_command("ACL", "SETUSER", "weak", "on", ">w", "~*", "+get", "+ping")
    weak = open_store(server.url.replace("unix://", "unix://weak:w@"), timeout=_TIMEOUT)
    wrong = open_store(server.url.replace("unix://", "unix://weak:s3cret@"), timeout=_TIMEOUT)
    with pytest.raises(StoreAway, match="lacks a permission"):
        await weak.ping()
    with pytest.raises(StoreAway, match="refuses the login") as caught:
        await wrong.ping()
    assert "s3cret" not in str(caught.value)
    await direct.config_set("requirepass", "p")
    none = open_store(server.url, timeout=_TIMEOUT)
    with pytest.raises(StoreAway, match="refuses the login"):
        await none.ping()
    for store in (weak, wrong, none):
        await store.close()


_KINDS = {"i": 0, "e": 1, "a": 2, "c": 3, "t": 4, "r": 5, "l": 6}


@pytest.mark.parametrize("kind", [*_KINDS, "leases"])
@pytest.mark.parametrize("ended", [False, True])
async def test_a_key_that_was_evicted_makes_no_wrong_answer_and_nothing_stay(
    store: RedisStore, direct: Any, kind: str, ended: bool
) -> None:
    await create(store, _KEY, status="working")
    await store.append(_KEY, OURS, b"{}")
    if ended:
        await store.finish(_KEY, OURS, DONE)
    await direct.delete(Keys().leases if kind == "leases" else Keys().task(_KEY)[_KINDS[kind]])
    task, found = await store.get(_KEY), await store.outcome(_KEY)
    assert (task is None) == (kind == "t")
    assert (found is None) == (kind == "t" or (kind == "r" and ended))
    if found is not None:
        assert found == (task, DONE if ended else None)
    listed, _ = await store.page(SCOPE, None, 10)
    assert listed in ([], [task])
    assert await store.find_request(SCOPE, "s1", b"1") in (None, _KEY)
    if not ended and kind != "t":
        await store.append(_KEY, OURS, b"{}")
        assert await store.finish(_KEY, OURS, DONE) is not None
    endless = [key async for key in direct.scan_iter("*{*") if await direct.pttl(key) == -1]
    assert endless == []
    await create(store, key_of("t2"))
    await store.remove(key_of("t2"))
    await store.remove(_KEY)
    assert {key async for key in direct.scan_iter("*{*")} == set()


async def test_a_restart_with_persistence_keeps_every_task(server: RedisServer) -> None:
    server.close()
    lasting = RedisServer(server.path, "--appendonly", "yes", "--appendfsync", "always")
    store = open_store(lasting.url, timeout=1.0)
    await create(store, _KEY, status="working")
    lasting.stop()
    lasting.start()
    await _back(store)
    assert await store.finish(_KEY, OURS, DONE) is not None
    await store.close()
    lasting.close()


async def test_a_secret_that_the_store_lost_is_put_back_by_who_has_it(
    server: RedisServer, way: Troubled, store: RedisStore, direct: Any
) -> None:
    assert await store.shared_secret(lambda: b"first") == b"first"
    await direct.flushall()
    await store.sweep()
    assert await direct.get("mtg:secret") == b"first"
    server.stop()
    server.start()
    await _back(store)

    async def there() -> bool:
        return await direct.get("mtg:secret") == b"first"

    await until(there)
    newcomer = open_store(way.url)
    assert await newcomer.shared_secret(lambda: b"second") == b"first"
    await newcomer.close()


async def test_a_secret_that_differs_is_told_once(
    store: RedisStore, direct: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await store.shared_secret(lambda: b"first")
    await direct.set("mtg:secret", b"second")
    await store.sweep()
    await store.sweep()
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1 and "another secret" in told[0].message
    assert "first" not in caplog.text and "second" not in caplog.text


async def test_an_outage_is_told_once_and_its_end_once(
    way: Troubled, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    await _back(store)
    caplog.clear()
    way.shut()
    for _ in range(20):
        with pytest.raises(StoreAway):
            await store.renew([_KEY], "r1", LEASE_MS)
        with pytest.raises(StoreAway):
            await store.get(_KEY)
    way.open_again()
    await _back(store)
    told = [record.message for record in caplog.records if record.name == "gateway.store"]
    assert len(told) == 2
    assert "is away" in told[0] and "answers again" in told[1]
