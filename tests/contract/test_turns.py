"""Turns across replicas: how many at the same time, who is next, what a dead replica leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.store.bus import RedisBus
from gateway.store.port import CROWDED, GIVEN, Ask, Asker, Line, Named, Turned, bell_of
from gateway.store.redis import RedisStore
from gateway.tasks.model import Scope
from tests.contract.conftest import World
from tests.contract.making import until

A, B, C = (Scope("reports", name) for name in ("alice", "bob:{}", "carol"))
R1, R2 = Asker("r1", 30_000), Asker("r2:{}", 30_000)
ONE = Line("reports", "render_*", 1)


async def ask(
    store: RedisStore,
    line: Line,
    asker: Asker,
    asks: Sequence[Ask],
    *,
    bound: int | None = None,
    named: Named = "new",
) -> Turned:
    found = await store.turns.ask(line, asker, asks, bound=bound, named=named)
    assert found is not None
    return found


async def wait(
    store: RedisStore, line: Line, asker: Asker, scope: Scope, ticket: str, bound: int | None = None
) -> int:
    """Ask for one turn; return what came of it."""
    found = await ask(store, line, asker, [Ask("wait", scope, ticket)], bound=bound)
    return found.states[0]


async def has(store: RedisStore, line: Line, asker: Asker, scope: Scope, *tickets: str) -> list[bool]:
    """Tell which tickets that wait or have turns have them."""
    found = await ask(store, line, asker, [Ask("wait", scope, ticket) for ticket in tickets])
    return [state == GIVEN for state in found.states]


async def empty(world: World, store: RedisStore, line: Line, *askers: Asker) -> None:
    """Let everybody go, and find that nothing is left but what goes by itself."""
    for asker in askers:
        await ask(store, line, asker, [], named="all")
    here = set(world.link().keys.line(line.upstream, line.pattern))
    keys = here & await world.keys()
    assert {key[-2:] for key in keys} <= {b":r", b":n"}, keys
    for key in keys:
        assert 0 < await world.redis.pttl(key) <= 4 * 30_000
        await world.redis.delete(key)


async def test_no_more_than_the_bound_have_turns_on_all_replicas(
    world: World, store: RedisStore, other: RedisStore
) -> None:
    line = Line("reports", "render_*", 3)
    states = [await wait(store, line, R1, A, str(n)) for n in range(3)]
    states += [await wait(other, line, R2, A, str(n)) for n in range(3)]
    assert states == [GIVEN, GIVEN, GIVEN, 0, 1, 2]
    await store.turns.leave(line, R1, [("0", 5)])
    assert await has(other, line, R2, A, "0", "1", "2") == [True, False, False]
    await empty(world, store, line, R1, R2)


async def test_another_rule_and_another_upstream_have_turns_of_their_own(
    world: World, store: RedisStore
) -> None:
    lines = [ONE, Line("reports", "other", 1), Line("mail", "render_*", 1)]
    assert [await wait(store, line, R1, A, "1") for line in lines] == [GIVEN] * 3
    for line in lines:
        await empty(world, store, line, R1)


async def test_scopes_take_turns_and_within_a_scope_the_first_is_first(
    world: World, store: RedisStore
) -> None:
    assert await wait(store, ONE, R1, A, "a0") == GIVEN
    before = [await wait(store, ONE, R1, A, f"a{n}") for n in range(1, 5)]
    before += [await wait(store, ONE, R2, scope, f"{scope.tag[0]}{n}") for n in (1, 2) for scope in (B, C)]
    # What a scope has waiting of its own, and up to as much of each other.
    assert before == [0, 1, 2, 3, 1, 2, 5, 5]
    order = ["a0"]
    names = {"a": (R1, A), "b": (R2, B), "c": (R2, C)}
    waiting = ["a1", "a2", "a3", "a4", "b1", "b2", "c1", "c2"]
    while waiting:
        last = order[-1]
        await store.turns.leave(ONE, names[last[0]][0], [(last, 1)])
        now = [one for one in waiting if (await has(store, ONE, *names[one[0]], one))[0]]
        assert len(now) == 1
        waiting.remove(now[0])
        order += now
    assert order == ["a0", "a1", "b1", "c1", "a2", "b2", "c2", "a3", "a4"]
    await empty(world, store, ONE, R1, R2)


async def test_a_scope_that_has_as_many_as_it_may_is_passed_over(world: World, store: RedisStore) -> None:
    line = Line("reports", "render_*", 3, 2)
    states = [await wait(store, line, R1, A, f"a{n}") for n in range(4)]
    assert [state == GIVEN for state in states] == [True, True, False, False]
    assert await wait(store, line, R1, B, "b0") == GIVEN
    assert await wait(store, line, R1, B, "b1") != GIVEN
    await store.turns.leave(line, R1, [("b0", 1)])
    assert await has(store, line, R1, B, "b1") == [True]
    assert await has(store, line, R1, A, "a2") == [False]
    await store.turns.leave(line, R1, [("a1", 1)])
    assert await has(store, line, R1, A, "a2", "a3") == [True, False]
    await empty(world, store, line, R1)


async def test_a_bound_for_scopes_alone_bounds_each(world: World, store: RedisStore) -> None:
    line = Line("reports", "render_*", None, 1)
    given = [
        await wait(store, line, R1, scope, f"{scope.tag[0]}{n}") for scope in (A, B, C) for n in (0, 1)
    ]
    assert [state == GIVEN for state in given] == [True, False] * 3
    await store.turns.leave(line, R1, [("b0", 1)])
    assert await has(store, line, R1, B, "b1") == [True]
    assert await has(store, line, R1, A, "a1") == [False]
    await empty(world, store, line, R1)


async def test_I10_a_full_queue_takes_no_more_but_for_the_first_of_a_scope(
    world: World, store: RedisStore
) -> None:
    await wait(store, ONE, R1, A, "a0", 2)
    assert [await wait(store, ONE, R1, A, f"a{n}", 2) for n in (1, 2, 3)] == [0, 1, CROWDED]
    assert await wait(store, ONE, R1, B, "b1", 2) == 1
    assert await wait(store, ONE, R1, B, "b2", 2) == CROWDED
    assert await wait(store, ONE, R1, C, "c1", 2) == 2
    assert await wait(store, ONE, R1, Scope("reports", "dora"), "d1", 2) == CROWDED
    # One that may not wait leaves nothing behind.
    await store.turns.leave(ONE, R1, [("a0", 1), ("a1", None), ("a2", None)])
    assert await wait(store, ONE, R1, A, "a3", 2) != CROWDED
    await empty(world, store, ONE, R1)


async def test_where_nobody_may_wait_a_free_turn_is_taken_all_the_same(
    world: World, store: RedisStore
) -> None:
    assert await wait(store, ONE, R1, A, "1", 0) == GIVEN
    assert await wait(store, ONE, R1, B, "2", 0) == CROWDED
    await empty(world, store, ONE, R1)


async def test_who_leaves_the_queue_is_no_more_in_it(world: World, store: RedisStore) -> None:
    for ticket in ("1", "2", "3"):
        await wait(store, ONE, R1, A, ticket)
    await store.turns.leave(ONE, R1, [("2", None)])
    await store.turns.leave(ONE, R1, [("1", 1), ("1", 1)])
    assert await has(store, ONE, R1, A, "3") == [True]
    found = await ask(store, ONE, R1, [])
    assert found.waiting == 0
    await empty(world, store, ONE, R1)


async def test_the_mean_time_of_a_turn_is_known(world: World, store: RedisStore) -> None:
    found = await ask(store, ONE, R1, [Ask("wait", A, "1")])
    assert found.mean_ms is None
    await store.turns.leave(ONE, R1, [("1", 1_000)])
    await wait(store, ONE, R1, A, "2")
    await store.turns.leave(ONE, R1, [("2", 2_000)])
    assert (await ask(store, ONE, R1, [])).mean_ms == 1_200
    await empty(world, store, ONE, R1)


async def test_the_replica_of_who_is_next_hears_a_bell(world: World, store: RedisStore) -> None:
    bus = RedisBus(world.link(), R2.replica)
    async with asyncio.timeout(10), bus.watch(bell_of(R2.replica, "7")) as bell:
        await bell.wait()
        await wait(store, ONE, R1, A, "1")
        await wait(store, ONE, R2, B, "7")
        await store.turns.leave(ONE, R1, [("1", 1)])
        await bell.wait()
        assert await has(store, ONE, R2, B, "7") == [True]
    await bus.close()
    await empty(world, store, ONE, R1, R2)


async def test_I5_what_a_dead_replica_had_is_free_within_the_lease(world: World, store: RedisStore) -> None:
    dying = Asker("r3", 200)
    assert await wait(store, ONE, dying, A, "1") == GIVEN
    await wait(store, ONE, dying, B, "2")
    await wait(store, ONE, R1, C, "3")

    async def next_has_it() -> bool:
        return (await has(store, ONE, R1, C, "3"))[0]

    assert not await next_has_it()
    await until(next_has_it, words="the turns of a dead replica were not given on")
    assert (await ask(store, ONE, R1, [])).waiting == 0
    # It is told nothing for a question about part of what it had, and may name it all.
    assert await store.turns.ask(ONE, dying, [Ask("hold", A, "1")], named="some") is None
    await ask(store, ONE, dying, [Ask("hold", A, "1"), Ask("wait", B, "2")], named="all")
    assert await has(store, ONE, dying, A, "1") == [True]
    await empty(world, store, ONE, R1, dying)


async def test_what_a_replica_no_longer_names_is_let_go_of(world: World, store: RedisStore) -> None:
    for ticket in ("1", "2", "3"):
        await wait(store, ONE, R1, A, ticket)
    await wait(store, ONE, R2, A, "1")
    found = await ask(store, ONE, R1, [Ask("known", A, "2"), Ask("wait", A, "3")], named="all")
    assert found.states == [GIVEN, 0]
    assert found.waiting == 2
    await empty(world, store, ONE, R1, R2)


async def test_an_emptied_store_is_told_anew_who_has_turns(world: World, store: RedisStore) -> None:
    assert await wait(store, ONE, R1, A, "1") == GIVEN
    await world.redis.flushdb()
    assert await store.turns.ask(ONE, R1, [Ask("wait", A, "2")], named="some") is None
    found = await ask(store, ONE, R1, [Ask("hold", A, "1"), Ask("wait", A, "2")], named="all")
    assert found.states == [GIVEN, 0]
    # A call that goes on is counted whatever the bound says.
    assert (await ask(store, ONE, R2, [Ask("hold", B, "9")])).states == [GIVEN]
    await store.turns.leave(ONE, R1, [("1", 1)])
    assert await has(store, ONE, R1, A, "2") == [False]
    await store.turns.leave(ONE, R2, [("9", 1)])
    assert await has(store, ONE, R1, A, "2") == [True]
    await empty(world, store, ONE, R1, R2)


async def test_a_bound_that_changes_holds_from_then_on(world: World, store: RedisStore) -> None:
    wide, narrow = Line("reports", "render_*", 3, 3), Line("reports", "render_*", 3, 1)
    assert [await wait(store, narrow, R1, A, str(n)) for n in range(3)] == [GIVEN, 0, 1]
    await store.turns.leave(wide, R1, [("0", 1)])
    assert await has(store, wide, R1, A, "1", "2") == [True, True]
    await wait(store, narrow, R1, A, "3")
    await store.turns.leave(narrow, R1, [("1", 1)])
    assert await has(store, narrow, R1, A, "3") == [False]
    await store.turns.leave(narrow, R1, [("2", 1)])
    assert await has(store, narrow, R1, A, "3") == [True]
    await empty(world, store, wide, R1)
