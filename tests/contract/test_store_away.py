"""A store that is away: an error in time, and all well when it is back."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from gateway.config.checks import STORE_SCHEMES
from gateway.protocol.errors import ConfigError, StoreAway
from gateway.store.lanes import Connection, Lane
from gateway.store.link import SCHEMES, Link, open_link
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import Task
from tests.contract.conftest import World
from tests.contract.making import DONE, LEASE_MS, OURS, ROOMY, SCOPE, create, key_of, new_task, until
from tests.redis_servers import RedisServer


async def test_I9_a_stopped_store_is_away_at_once_and_well_again_after(server: RedisServer) -> None:
    store = open_store(server.url, timeout=2.0)
    await create(store, key_of())
    server.stop()
    began = time.monotonic()
    results = await asyncio.gather(*(store.get(key_of()) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(result, StoreAway) for result in results)
    assert time.monotonic() - began < 2.5
    server.start()
    await until(lambda: _well(store), seconds=2)
    assert isinstance(await store.create(new_task(key_of()), "r1", LEASE_MS, ROOMY), Task)
    await store.close()


async def test_I9_an_idle_connection_that_died_costs_no_operation(server: RedisServer) -> None:
    store = open_store(server.url)
    await store.ping()
    server.stop()
    server.start()
    await until(_connection(store).can_read, words="the end of the connection was not seen")
    await store.ping()
    await store.close()


async def test_I9_a_store_that_hangs_is_away_within_the_time_out(server: RedisServer) -> None:
    store = open_store(server.url, timeout=0.3)
    await create(store, key_of())
    server.hang()
    began = time.monotonic()
    first = asyncio.ensure_future(store.get(key_of()))
    await asyncio.sleep(0.1)
    results = await asyncio.gather(first, store.get(key_of()), return_exceptions=True)
    assert [type(result) for result in results] == [StoreAway, StoreAway]
    assert time.monotonic() - began < 1.0
    server.wake()
    await until(lambda: _well(store))
    await store.close()


async def _well(store: RedisStore) -> bool:
    try:
        await store.ping()
    except StoreAway:
        return False
    return True


async def test_I9_a_store_that_was_never_there_is_away_with_words_and_without_the_password(
    server: RedisServer,
) -> None:
    server.stop()
    store = open_store(server.url.replace("unix://", "unix://user:s3cret@"), timeout=1.0)
    with pytest.raises(StoreAway) as caught:
        await store.ping()
    assert "cannot be reached" in str(caught.value)
    assert "s3cret" not in f"{caught.value!r} {store!r}"
    await store.close()


async def test_scripts_that_the_server_has_lost_are_loaded_again(world: World, store: RedisStore) -> None:
    await create(store, key_of())
    await world.redis.script_flush()
    results = await asyncio.gather(store.start(key_of(), OURS), store.get(key_of()), store.ping())
    assert results[0] is not None and results[1] is not None
    assert await store.finish(key_of(), OURS, DONE) is not None


async def test_a_store_that_refuses_to_write_is_away_with_its_words(server: RedisServer) -> None:
    store = open_store(server.url)
    await create(store, key_of())
    await _configure(store.link, b"maxmemory", b"1")
    with pytest.raises(StoreAway, match=r"OOM|OutOfMemory"):
        await store.create(new_task(key_of("t2")), "r1", LEASE_MS, ROOMY)
    await _configure(store.link, b"maxmemory", b"0")
    assert await store.start(key_of(), OURS) is not None
    await store.close()


def _connection(store: RedisStore) -> Connection:
    lane = store.link.quick
    assert isinstance(lane, Lane)
    return lane._connection  # pyright: ignore[reportPrivateUsage]  # seen from outside only here


async def _configure(link: Link, name: bytes, value: bytes) -> None:
    await link.quick.ask((b"CONFIG", b"SET", name, value))


async def test_a_caller_that_is_cancelled_disturbs_nobody(store: RedisStore) -> None:
    await create(store, key_of())
    gets = [asyncio.ensure_future(store.get(key_of())) for _ in range(10)]
    await asyncio.sleep(0)
    for get in gets[::2]:
        get.cancel()
    results = await asyncio.gather(*gets, return_exceptions=True)
    assert [isinstance(result, Task) for result in results] == [False, True] * 5
    assert await store.get(key_of()) is not None


async def test_a_closed_store_is_away_and_what_waited_is_answered(world: World) -> None:
    store = world.store()
    await store.ping()
    waiting = asyncio.ensure_future(store.ping())
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(StoreAway):
        await store.ping()


async def test_I10_more_operations_than_may_wait_are_refused(world: World, store: RedisStore) -> None:
    await store.ping()
    results = await asyncio.gather(*(store.ping() for _ in range(10_050)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, StoreAway)]
    assert len(refused) == 50
    assert "10000" in str(refused[0])
    await store.ping()


async def test_large_results_come_back_byte_for_byte(store: RedisStore, other: RedisStore) -> None:
    outcome = type(DONE)(status="completed", result=bytes(range(256)) * 20_000)
    await create(store, key_of(), status="working")
    await store.finish(key_of(), OURS, outcome)
    found = await other.outcome(key_of())
    assert found is not None and found[1] == outcome


async def test_the_first_replica_decides_the_shared_secret(store: RedisStore, other: RedisStore) -> None:
    secrets = [b"%d" % number for number in range(10)]
    given = await asyncio.gather(
        *(
            place.shared_secret(lambda secret=secret: secret)
            for place, secret in zip((store, other) * 5, secrets, strict=True)
        )
    )
    assert len(set(given)) == 1 and given[0] in secrets
    assert await other.shared_secret(lambda: b"another") == given[0]


async def test_each_operation_is_observed(world: World) -> None:
    seen: list[tuple[str, bool]] = []
    store = RedisStore(
        world.link(), observe=lambda name, seconds, ok: seen.append((name, ok and seconds >= 0))
    )
    await create(store, key_of())
    await store.start(key_of(), OURS)
    await store.finish(key_of(), OURS, DONE)
    await store.outcome(key_of())
    assert seen == [("create", True), ("start", True), ("finish", True), ("outcome", True)]


async def test_creation_and_end_are_one_round_trip_each(
    world: World, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(store, key_of("warm"), status="completed")
    await store.get(key_of("warm"))
    trips = 0
    connection = _connection(store)
    send = connection.send_packed_command

    async def count(*args: object, **kwargs: object) -> None:
        nonlocal trips
        trips += 1
        await send(*args, **kwargs)  # pyright: ignore[reportArgumentType]  # passed on as they came

    monkeypatch.setattr(connection, "send_packed_command", count)
    await store.create(new_task(key_of()), "r1", LEASE_MS, ROOMY)
    assert trips == 1
    await store.finish(key_of(), OURS, DONE)
    assert trips == 2
    await asyncio.gather(*(store.get(key_of()) for _ in range(50)))
    assert trips == 3
    assert (await store.page(SCOPE, None, 10))[1] is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:6379", "must begin with"),
        ("http://s3cret@x", "http:// is not known"),
        ("redis+cluster://:s3cret@x:1/3", "not a valid redis+cluster:// URL"),
        ("redis+cluster://:s3cret@x:1?s3cret=1", "not a valid redis+cluster:// URL"),
        ("rediss+cluster://:s3cret@x:1?s3cret=1", "not a valid rediss+cluster:// URL"),
        ("redis+cluster://:s3cret@", "not a valid redis+cluster:// URL"),
        ("redis://:s3cret@host:s3cret/0", "not a valid redis:// URL"),
        ("redis://:s3cret@host/0?s3cret=1", "not a valid redis:// URL"),
        ("redis+sentinel://:s3cret@host", "not a valid redis+sentinel:// URL"),
        ("redis+sentinel://:s3cret@host:1/master/x", "not a valid redis+sentinel:// URL"),
    ],
)
def test_I12_a_bad_url_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_link(url)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://:p@h:1/1?ssl_cert_reqs=none",
        "unix:///tmp/x?db=3",
        "redis+sentinel://a,b:5/m/2",
        "rediss+sentinel://:p@a,b:5/m/2?ssl_ca_certs=/tmp/ca.pem&sentinel_password=p@",
        "redis+cluster://u:p@a,b:5",
        "rediss+cluster://:p@a,[::1]:5/0?ssl_check_hostname=no",
    ],
)
def test_good_urls_are_understood_without_connecting(url: str) -> None:
    assert "p@" not in repr(open_link(url))


def test_the_configuration_knows_the_same_schemes() -> None:
    assert SCHEMES == STORE_SCHEMES


def test_a_prefix_with_braces_is_refused() -> None:
    with pytest.raises(ConfigError):
        open_link("memory://", prefix="a{b}")


async def test_losing_the_store_says_nothing_secret_in_the_log(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.stop()
    store = open_store(server.url.replace("unix://", "unix://user:s3cret@"), timeout=0.5)
    with pytest.raises(StoreAway):
        await store.ping()
    await store.close()
    assert "s3cret" not in caplog.text
