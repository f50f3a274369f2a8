"""Cursors of `tasks/list` at the desk, on the embedded store (SEP-1686 sections 3.5 and 4.9)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.aio.clock import SystemClock
from gateway.crossing.crossing import UpstreamCrossing
from gateway.dialects.port import About
from gateway.dialects.sep1686 import Sep1686
from gateway.observe.logs import TaskLog
from gateway.observe.metrics import Metrics
from gateway.protocol.envelope import dump, peek
from gateway.protocol.errors import Refusal
from gateway.service.order import ServiceLimits
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.session.about import PAGE, Desk
from gateway.session.exchange import Answer, Inbound
from gateway.session.names import Names
from gateway.session.pace import Pace
from gateway.session.visit import Served, Visit
from gateway.store.bus import RedisBus
from gateway.store.port import Bounds
from gateway.store.rates import StoreRates
from gateway.store.redis import RedisStore, open_store
from gateway.tasks.model import NewTask, Scope, Task, TaskKey
from gateway.tasks.policy import Policy, PolicyBook

ALICE: Final = Scope("reports", "s-alice")
BOB: Final = Scope("reports", "s-bob")
DIALECT: Final = Sep1686()
BAD: Final = "Failed to list tasks: Cursor is invalid"
Kind = Literal["create", "get", "result", "list"]


class NoUpstream:
    """An upstream that is not asked here."""

    name = "reports"
    http = None
    links = None
    prefers_links = False

    async def fall_back(self, tag: str, initialize: bytes, headers: list[tuple[str, str]]) -> None:
        raise AssertionError

    async def check(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError


class Room:
    """A desk and the store behind it."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.store: RedisStore = open_store("memory://")
        self.bus = RedisBus(self.store.link, "r1")
        witness = Witness(Metrics("0", ["reports"], [], []), TaskLog(), lambda _: None)
        limits = ServiceLimits(
            bounds=Bounds(1_000, 1_000),
            result_bytes=1_000,
            stream_queue_bytes=1_000,
            pending_requests=4,
            log_bytes=1_000_000,
            lease_ms=30_000,
        )
        self.service = TaskService("r1", self.store, self.bus, witness, clock, limits)
        rates: dict[Kind, str | None] = {}
        self.desk = Desk(
            self.service, StoreRates(self.store.link, rates), Names(b"n" * 32), Pace(witness, clock)
        )
        upstream = NoUpstream()
        self._served = Served(
            name="reports",
            upstream=upstream,
            policies=PolicyBook(default=Policy()),
            scope_mode="principal",
            taskable=(),
            plain_may_be_refused=False,
            dialects={"a": DIALECT},
            crossing=UpstreamCrossing(
                upstream, clock, max_sessions=1, idle=60.0, start_timeout=5.0, info=b"{}"
            ),
            answer_within=60_000,
            called=lambda _method, _outcome, _seconds: None,
        )

    async def make(self, scope: Scope, name: str) -> None:
        new = NewTask(
            key=TaskKey(scope, name),
            dialect="a",
            method="tools/call",
            tool="t",
            pattern="default",
            session=scope.tag,
            request_id=dump(name),
            keep_alive=60_000,
            poll_interval=None,
            timeout=60_000,
            first_status="submitted",
        )
        assert isinstance(await self.store.create(new, "r1", 30_000, Bounds(1_000, 1_000)), Task)

    async def page(self, scope: Scope, cursor: str | None) -> tuple[list[str], str | None]:
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": params}
        body = json.dumps(message).encode()
        visit = Visit(
            self._served, Inbound("reports", "POST", [], body), None, scope, peek(body), known=True
        )
        answer = await self.desk.answer(visit, DIALECT, About("list", cursor=cursor))
        assert isinstance(answer, Answer)
        result = json.loads(answer.body)["result"]
        return [task["taskId"] for task in result["tasks"]], result.get("nextCursor")

    async def all_pages(self, scope: Scope) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: str | None = None
        while True:
            names, cursor = await self.page(scope, cursor)
            pages.append(names)
            if cursor is None:
                return pages

    async def close(self) -> None:
        await self.service.close()
        await self.bus.close()
        await self.store.close()


@asynccontextmanager
async def opened() -> AsyncGenerator[Room]:
    room = Room()
    try:
        yield room
    finally:
        await room.close()


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as room:
        yield room


@pytest.mark.parametrize("number", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 3])
async def test_A_pages_hold_every_task_once_and_end_without_a_cursor(room: Room, number: int) -> None:
    names = [f"t{index:03}" for index in range(number)]
    for name in names:
        await room.make(ALICE, name)
    pages = await room.all_pages(ALICE)
    assert [name for page in pages for name in page] == names
    assert all(0 < len(page) <= PAGE for page in pages) or number == 0
    assert len(pages) == max(1, -(-number // PAGE))


async def test_A_a_cursor_stays_good_while_tasks_come_and_go(room: Room) -> None:
    names = [f"t{index:03}" for index in range(PAGE + 10)]
    for name in names:
        await room.make(ALICE, name)
    _, cursor = await room.page(ALICE, None)
    for name in (names[0], names[PAGE - 1], names[PAGE], names[-1]):
        await room.service.remove(TaskKey(ALICE, name))
    await room.make(ALICE, "late")
    wanted = [*names[PAGE + 1 : -1], "late"]
    assert await room.page(ALICE, cursor) == (wanted, None)
    assert await room.page(ALICE, cursor) == (wanted, None)


async def test_I7_a_cursor_of_another_scope_is_refused_like_garbage(room: Room) -> None:
    for index in range(PAGE + 1):
        await room.make(ALICE, f"a{index}")
        await room.make(BOB, f"b{index}")
    _, cursor = await room.page(ALICE, None)
    said: list[tuple[int, str]] = []
    for wrong in (cursor, "garbage"):
        with pytest.raises(Refusal) as caught:
            await room.page(BOB, wrong)
        said.append((caught.value.code, caught.value.message))
    assert said == [(-32602, BAD)] * 2


def spelt(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(
    st.text() | st.text().map(spelt) | st.text(max_size=20).map(lambda place: spelt(f"{ALICE.tag}|{place}"))
)
@example("")
@example("=")
@example("é")
@example("\ud800")
@example("A" * 100_000)
@example(spelt(f"{ALICE.tag}|"))
@example(spelt(f"{ALICE.tag}|99999999999999999999999"))
@example(spelt(f"{ALICE.tag}|abc"))
@example(spelt(f"{ALICE.tag}|-1"))
@example(spelt(f"{ALICE.tag}|\u0663"))
@example(spelt(f"{ALICE.tag}|upstream"))
@settings(deadline=None, max_examples=60)
async def test_A_any_text_is_a_cursor_or_refused_in_the_words_of_the_seed(cursor: str) -> None:
    async with opened() as room:
        await room.make(ALICE, "t")
        try:
            names, _ = await room.page(ALICE, cursor)
        except Refusal as refusal:
            assert (refusal.code, refusal.message) == (-32602, BAD)
        else:
            assert names in ([], ["t"])
