"""Notifications of changes on their way to one subscription: as one where several sessions tell of them."""

from __future__ import annotations

import asyncio

from gateway.crossing.changes import SETTLE, Listener
from gateway.crossing.port import Wanted
from gateway.protocol.envelope import dump, notification, peek
from tests.warm.service_world import HandClock

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
ALL = Wanted(tools=True, prompts=True, resources=True, uris=("test://a", "test://b"))


def change(listener: Listener, method: str, uri: str = "") -> None:
    listener.offer(peek(notification(method, b'{"uri":%b}' % dump(uri) if uri else b"{}")))


async def taken(clock: HandClock, listener: Listener) -> str:
    """Return what is told next, once it is told."""
    taking = asyncio.create_task(listener.take())
    await clock.slept_on()
    clock.move(2 * SETTLE)
    raw = await taking
    assert raw is not None
    return peek(raw).method


async def test_what_is_heard_twice_within_a_moment_is_told_once() -> None:
    clock = HandClock()
    listener = Listener(ALL, clock)
    for _ in range(3):
        change(listener, TOOLS)
    taking = asyncio.create_task(listener.take())
    await clock.slept_on()
    clock.move(SETTLE / 2)
    change(listener, TOOLS)
    assert not taking.done()
    clock.move(SETTLE)
    assert await taking
    # The next one is another change.
    change(listener, TOOLS)
    assert await taken(clock, listener) == TOOLS


async def test_what_differs_is_told_in_the_order_of_coming() -> None:
    clock = HandClock()
    listener = Listener(ALL, clock)
    for method, uri in ((UPDATED, "test://b"), (TOOLS, ""), (UPDATED, "test://a"), (PROMPTS, "")):
        change(listener, method, uri)
    change(listener, UPDATED, "test://b")
    change(listener, UPDATED, "test://c")
    assert await taken(clock, listener) == UPDATED
    found = [peek(await listener.take() or b"{}").method for _ in range(3)]
    assert found == [TOOLS, UPDATED, PROMPTS]


async def test_a_change_after_the_telling_is_not_lost() -> None:
    clock = HandClock()
    listener = Listener(ALL, clock)
    for _ in range(5):
        change(listener, TOOLS)
        assert await taken(clock, listener) == TOOLS


async def test_what_waits_is_told_when_the_session_has_ended() -> None:
    clock = HandClock()
    listener = Listener(ALL, clock)
    change(listener, TOOLS)
    listener.end()
    assert await taken(clock, listener) == TOOLS
    assert await listener.take() is None


async def test_one_session_alone_is_told_at_once() -> None:
    listener = Listener(ALL)
    change(listener, TOOLS)
    change(listener, TOOLS)
    assert peek(await listener.take() or b"{}").method == TOOLS
    listener.end()
    assert await listener.take() is None
