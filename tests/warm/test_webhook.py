"""The webhook against a real receiver on loopback, which verifies every signature; time is virtual."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from gateway.hooks.port import TaskEnded
from gateway.hooks.run import Hooks
from plugins.webhook import AT_ONCE, Signer, TimeAndChance, Webhook, compose

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
START_NS = 1_700_000_100_000_000_000


def an_event(task_id: str = "t1", **changes: Any) -> TaskEnded:
    facts: dict[str, Any] = {
        "upstream": "reports",
        "task_id": task_id,
        "scope": "scope-tag",
        "session": "session-tag",
        "dialect": "a",
        "method": "tools/call",
        "tool": "render",
        "status": "completed",
        "is_error": False,
        "error": None,
        "created_at": 1_700_000_000_000,
        "ended_at": 1_700_000_001_234,
    }
    return TaskEnded(**(facts | changes))


class World:
    """Virtual time: a sleep takes none, and is remembered; `hold` makes sleepers wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.asleep = asyncio.Event()
        self.hold = False

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        if self.hold:
            await asyncio.Event().wait()
        wake = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, wake)

    def outside(self) -> TimeAndChance:
        def time_ns() -> int:
            return START_NS + int((self.now - 1000.0) * 1e9)

        return TimeAndChance(lambda: self.now, time_ns, self.sleep, lambda: 1.0)


class Receiver:
    """Answers with what it was told, in order, then 204; keeps what came with a good signature."""

    def __init__(self) -> None:
        self.answers: list[web.Response | Callable[[], Awaitable[web.Response]]] = []
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[web.BaseRequest] = []
        self.arrived = asyncio.Semaphore(0)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=hush"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert f"v1,{expected}" in request.headers["webhook-signature"].split(" ")
        self.bodies.append(json.loads(body))
        self.requests.append(request)
        self.arrived.release()
        if not self.answers:
            return web.Response(status=204)
        answer = self.answers.pop(0)
        return answer if isinstance(answer, web.Response) else await answer()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    told = Receiver()
    server = web.Server(told.answer)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    told.port = listening.getsockname()[1]
    await web.SockSite(runner, listening).start()
    yield told
    await runner.cleanup()


class Running:
    """A webhook in the house that runs it, and what was counted."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.world = World()
        self.webhook = Webhook(options, self.world.outside())
        self.counted: asyncio.Queue[str] = asyncio.Queue()
        self.hooks = Hooks([self.webhook], count=self._count, drop=lambda: None)

    def _count(self, _plugin: str, outcome: str) -> None:
        if outcome != "heard":
            self.counted.put_nowait(outcome)

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.counted.get()

    def left(self) -> list[str]:
        return [self.counted.get_nowait() for _ in range(self.counted.qsize())]


@asynccontextmanager
async def running(url: str, **options: Any) -> AsyncGenerator[Running]:
    runs = Running({"url": url, "secret": SECRET, "allow_http": True} | options)
    await runs.hooks.start()
    try:
        yield runs
    finally:
        await runs.hooks.stop(0)


def a_closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def test_an_ended_task_is_posted_signed_without_arguments_or_results(receiver: Receiver) -> None:
    async with running(receiver.url, headers={"X-Team": "blue"}) as runs:
        runs.hooks.publish(an_event(status="failed", is_error=True, error="it broke"))
        assert await runs.next() == "delivered"
    (request,) = receiver.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-team"] == "blue"
    assert request.headers["webhook-timestamp"] == "1700000100"
    assert receiver.bodies == [
        {
            "type": "task.ended",
            "id": request.headers["webhook-id"],
            "time": "2023-11-14T22:13:21.234Z",
            "task": {
                "id": "t1",
                "upstream": "reports",
                "scope": "scope-tag",
                "session": "session-tag",
                "dialect": "a",
                "method": "tools/call",
                "tool": "render",
                "status": "failed",
                "is_error": True,
                "error": "it broke",
                "created_at": "2023-11-14T22:13:20.000Z",
                "ended_at": "2023-11-14T22:13:21.234Z",
            },
        }
    ]


def test_the_signature_is_that_of_the_standards_own_example() -> None:
    signer = Signer("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_several_secrets_all_sign_so_that_one_can_be_replaced(receiver: Receiver) -> None:
    older = "whsec_" + base64.b64encode(b"o" * 24).decode()
    async with running(receiver.url, secret=f"{older} {SECRET}") as runs:
        runs.hooks.publish(an_event())
        assert await runs.next() == "delivered"
    assert len(receiver.requests[0].headers["webhook-signature"].split(" ")) == 2


def test_an_events_id_is_the_same_on_every_replica_and_differs_between_events() -> None:
    assert compose(an_event())[0] == compose(an_event())[0]
    assert compose(an_event())[0] != compose(an_event(ended_at=1_700_000_001_235))[0]
    message_id, body = compose(an_event(task_id="\ud800.\n", error="x" * 50_000))
    assert message_id.removeprefix("msg_").isalnum()
    assert len(body) < 20_000


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_an_answer_that_may_change_is_asked_for_again_later_each_time_later(
    receiver: Receiver, status: int
) -> None:
    receiver.answers = [web.Response(status=status) for _ in range(3)]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        assert [await runs.next() for _ in range(4)] == ["retried", "retried", "retried", "delivered"]
    assert runs.world.slept == [1.0, 2.0, 4.0]
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    stamps = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
    assert stamps == [1700000100, 1700000101, 1700000103, 1700000107]


async def test_the_pause_has_a_limit_and_the_attempts_an_end(receiver: Receiver) -> None:
    receiver.answers = [web.Response(status=500) for _ in range(5)]
    async with running(receiver.url, attempts=5, backoff={"first": 10, "max": "25s"}) as runs:
        runs.hooks.publish(an_event())
        assert [await runs.next() for _ in range(5)] == ["retried"] * 4 + ["exhausted"]
    assert runs.world.slept == [10.0, 20.0, 25.0, 25.0]
    assert len(receiver.requests) == 5


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 422])
async def test_an_answer_that_will_not_change_ends_the_delivery_and_no_redirect_is_followed(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    receiver.answers = [web.Response(status=status, headers={"Location": receiver.url})]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        assert await runs.next() == "refused"
        runs.hooks.publish(an_event("t2"))
        assert await runs.next() == "delivered"
    assert [body["task"]["id"] for body in receiver.bodies] == ["t1", "t2"]
    assert f"answered {status}" in caplog.text


async def test_a_receiver_that_is_gone_gets_nothing_more(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [web.Response(status=410)]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        assert await runs.next() == "gone"
        runs.hooks.publish(an_event("t2"))
        assert await runs.next() == "gone"
        assert repr(runs.webhook) == f"<Webhook to http://127.0.0.1:{receiver.port}: 0 waiting, gone>"
    assert len(receiver.requests) == 1
    assert "nothing more is sent" in caplog.text


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured_for_every_delivery(receiver: Receiver, form: str) -> None:
    date = format_datetime(datetime.fromtimestamp(START_NS / 1e9 + 120, UTC), usegmt=True)
    asked = {"Retry-After": "120" if form == "seconds" else date}
    receiver.answers = [web.Response(status=429, headers=asked)]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        assert await runs.next() == "retried"
        await runs.world.asleep.wait()
        runs.hooks.publish(an_event("t2"))
        assert [await runs.next() for _ in range(2)] == ["delivered", "delivered"]
    stamps = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
    assert stamps == [1700000100, 1700000220, 1700000220]


async def test_a_retry_after_that_is_nonsense_or_of_years_does_not_hold_up_for_ever(
    receiver: Receiver,
) -> None:
    receiver.answers = [
        web.Response(status=503, headers={"Retry-After": "soon"}),
        web.Response(status=503, headers={"Retry-After": "99999999"}),
    ]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        assert [await runs.next() for _ in range(3)] == ["retried", "retried", "delivered"]
    assert runs.world.slept == [1.0, 3600.0]


async def test_a_receiver_that_does_not_answer_is_given_up_in_time(receiver: Receiver) -> None:
    async def hang() -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    receiver.answers = [hang]
    async with running(receiver.url, timeout="50ms") as runs:
        runs.hooks.publish(an_event())
        assert [await runs.next() for _ in range(2)] == ["retried", "delivered"]


async def test_a_receiver_that_is_not_there_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(f"http://127.0.0.1:{a_closed_port()}/?token=hush", attempts=3) as runs:
        runs.hooks.publish(an_event())
        assert [await runs.next() for _ in range(3)] == ["retried", "retried", "exhausted"]
    assert "attempt 3: ClientConnectorError" in caplog.text
    assert "hush" not in caplog.text
    assert SECRET not in caplog.text


async def test_one_event_that_the_receiver_cannot_digest_holds_up_no_other(receiver: Receiver) -> None:
    receiver.answers = [web.Response(status=500)]
    async with running(receiver.url) as runs:
        runs.world.hold = True
        runs.hooks.publish(an_event())
        assert await runs.next() == "retried"
        runs.hooks.publish(an_event("t2"))
        assert await runs.next() == "delivered"


async def test_only_the_statuses_that_were_asked_for_are_sent(receiver: Receiver) -> None:
    async with running(receiver.url, statuses=["failed", "cancelled"]) as runs:
        runs.hooks.publish(an_event("t1"))
        runs.hooks.publish(an_event("t2", status="cancelled"))
        assert await runs.next() == "delivered"
    assert [body["task"]["id"] for body in receiver.bodies] == ["t2"]


async def test_I10_a_full_queue_loses_its_oldest_event_and_counts_it(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [web.Response(status=500) for _ in range(2)]
    async with running(receiver.url, queue=2) as runs:
        runs.world.hold = True
        runs.hooks.publish(an_event("t1"))
        runs.hooks.publish(an_event("t2"))
        assert [await runs.next() for _ in range(2)] == ["retried", "retried"]
        runs.hooks.publish(an_event("t3"))
        assert sorted([await runs.next(), await runs.next()]) == ["delivered", "dropped"]
        await runs.hooks.stop(0)
        assert runs.left() == ["abandoned"]
    assert "the oldest events are dropped" in caplog.text
    assert "1 events were not delivered" in caplog.text


async def test_I10_only_so_many_posts_are_under_way_at_once(receiver: Receiver) -> None:
    gate = asyncio.Event()

    async def wait() -> web.Response:
        await gate.wait()
        return web.Response(status=204)

    receiver.answers = [wait for _ in range(AT_ONCE + 4)]
    async with running(receiver.url) as runs:
        for number in range(AT_ONCE + 4):
            runs.hooks.publish(an_event(f"t{number}"))
        for _ in range(AT_ONCE):
            await receiver.arrived.acquire()
        assert len(receiver.requests) == AT_ONCE
        gate.set()
        assert [await runs.next() for _ in range(AT_ONCE + 4)] == ["delivered"] * (AT_ONCE + 4)


async def test_the_stop_finishes_what_is_queued(receiver: Receiver) -> None:
    receiver.answers = [web.Response(status=500)]
    async with running(receiver.url) as runs:
        for number in range(20):
            runs.hooks.publish(an_event(f"t{number}"))
        await runs.hooks.stop(60)
        assert sorted(runs.left()) == ["delivered"] * 20 + ["retried"]
    assert {body["task"]["id"] for body in receiver.bodies} == {f"t{number}" for number in range(20)}


async def test_the_stop_does_not_wait_for_attempts_that_are_due_after_its_end(receiver: Receiver) -> None:
    receiver.answers = [web.Response(status=503, headers={"Retry-After": "3000"})]
    async with running(receiver.url) as runs:
        runs.world.hold = True
        runs.hooks.publish(an_event())
        assert await runs.next() == "retried"
        await runs.world.asleep.wait()
        async with asyncio.timeout(10):
            await runs.hooks.stop(600)
        assert runs.left() == ["abandoned"]


async def test_the_stop_gives_up_on_a_receiver_that_hangs_when_its_time_is_over(receiver: Receiver) -> None:
    async def hang() -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    receiver.answers = [hang]
    async with running(receiver.url) as runs:
        runs.hooks.publish(an_event())
        await receiver.arrived.acquire()
        await runs.hooks.stop(0.05)
        assert runs.left() == ["abandoned"]
