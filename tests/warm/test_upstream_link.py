"""Which message of a duplex stream belongs to which call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.protocol.errors import Refusal, UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.lines import Lines, one_line
from gateway.upstream.link import MessageLink


class Tape:
    """A carrier that keeps what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.left: asyncio.Future[None] | None = None

    def write(self, message: bytes, headers: Headers) -> asyncio.Future[None] | None:
        self.written.append(message)
        return self.left

    async def close(self) -> None:
        return


def linked(**more: Any) -> tuple[MessageLink, Tape]:
    link, tape = MessageLink("t", lambda: 0.0, **more), Tape()
    link.attach(tape)
    return link, tape


def call(ident: str, token: str | None = None, method: str = "tools/call") -> bytes:
    meta = "" if token is None else f'"_meta":{{"progressToken":{token}}},'
    return f'{{"jsonrpc":"2.0","id":{ident},"method":"{method}","params":{{{meta}"name":"t"}}}}'.encode()


def result(ident: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{ident},"result":{{}}}}'.encode()


def progress(token: str) -> bytes:
    return (
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}'
    ).encode()


def asked(ident: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{ident},"method":"elicitation/create","params":{{}}}}'.encode()


def cancelled(ident: str) -> bytes:
    return (
        f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{ident}}}}}'
    ).encode()


LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}'


class Running:
    """An exchange or a listener that is read by a task."""

    def __init__(self, source: AsyncGenerator[bytes, None]) -> None:
        self.got: list[bytes] = []
        self.task = asyncio.create_task(self._read(source))

    async def _read(self, source: AsyncGenerator[bytes, None]) -> None:
        async for raw in source:
            self.got.append(raw)

    async def begun(self) -> Running:
        await turns()
        return self


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def exchange(link: MessageLink, message: bytes) -> Running:
    return await Running(link.exchange(message, [])).begun()


async def listen(link: MessageLink) -> Running:
    return await Running(link.listen()).begun()


async def test_responses_in_any_order_go_to_the_call_with_their_id() -> None:
    link, tape = linked()
    calls = [await exchange(link, call(ident)) for ident in ("0", "1", '"1"')]
    for ident in ('"1"', "9", "0", "1"):
        link.receive(result(ident))
    await asyncio.gather(*(one.task for one in calls))
    assert [one.got for one in calls] == [[result("0")], [result("1")], [result('"1"')]]
    assert tape.written == [call("0"), call("1"), call('"1"')]


async def test_I1_messages_are_written_in_the_order_of_their_calls() -> None:
    link, tape = linked()
    running = Running(link.exchange(call("1"), []))
    note = asyncio.create_task(link.send(cancelled("1"), []))
    other = Running(link.exchange(call("2"), []))
    await turns()
    assert tape.written == [call("1"), cancelled("1"), call("2")]
    for one in (running.task, other.task, note):
        one.cancel()


async def test_progress_goes_to_the_call_with_its_token_and_not_after_the_answer() -> None:
    link, _ = linked()
    first = await exchange(link, call("1", '"a"'))
    second = await exchange(link, call("2", "5"))
    link.receive(progress('"a"'))
    link.receive(progress("5"))
    link.receive(progress('"5"'))
    link.receive(result("1"))
    link.receive(progress('"a"'))
    link.receive(result("2"))
    listener = await listen(link)
    await asyncio.gather(first.task, second.task)
    assert first.got == [progress('"a"'), result("1")]
    assert second.got == [progress("5"), result("2")]
    assert listener.got == []
    listener.task.cancel()


async def test_a_server_request_goes_to_the_youngest_call_that_does_not_wait() -> None:
    link, _ = linked()
    old, young = await exchange(link, call("1")), await exchange(link, call("2"))
    listener = await listen(link)
    for ident in ('"s1"', '"s2"', '"s3"'):
        link.receive(asked(ident))
    link.receive(LOG)
    await turns()
    # Where all wait, one of them asks once more; news is for the listener then.
    assert young.got == [asked('"s1"'), asked('"s3"')]
    assert old.got == [asked('"s2"')]
    assert listener.got == [LOG]
    await link.send(result('"s1"'), [])
    await link.send(result('"s3"'), [])
    link.receive(LOG)
    link.receive(cancelled('"s2"'))
    await turns()
    assert young.got == [asked('"s1"'), asked('"s3"'), LOG]
    assert old.got == [asked('"s2"'), cancelled('"s2"')]
    assert listener.got == [LOG]
    for one in (old, young, listener):
        one.task.cancel()


@pytest.mark.parametrize("through", [False, True])
async def test_what_is_about_a_task_goes_to_the_call_that_waits_for_its_result(through: bool) -> None:
    link, tape = linked(through=through)

    def about(task: str, ident: str) -> bytes:
        related = f'"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"{task}"}}}}'
        method = "elicitation/create"
        return f'{{"jsonrpc":"2.0","id":{ident},"method":"{method}","params":{{{related}}}}}'.encode()

    waiting = [
        f'{{"jsonrpc":"2.0","id":{number},"method":"tasks/result","params":{{"taskId":"{task}"}}}}'.encode()
        for number, task in enumerate("ab")
    ]
    calls = [link.exchange(one, []) for one in waiting]
    reading = [asyncio.ensure_future(anext(one)) for one in calls]
    await asyncio.sleep(0)
    assert len(tape.written) == 2
    link.receive(about("a", "10"))
    assert b'"id":10' in await reading[0]
    link.receive(about("b", "11"))
    assert b'"id":11' in await reading[1]
    # Of a task that nobody waits for: on a pipe the client's own, else some call's that may be asked.
    link.receive(about("c", "12"))
    if through:
        heard = link.listen()
        assert b'"id":12' in await anext(heard)
        await heard.aclose()
    else:
        assert b'"id":12' in await anext(calls[1])
    for one in calls:
        await one.aclose()


async def test_where_all_calls_wait_and_nobody_listens_the_youngest_gets_the_next_question() -> None:
    link, _ = linked()
    only = await exchange(link, call("1"))
    link.receive(asked("1"))
    link.receive(asked("2"))
    await turns()
    assert only.got == [asked("1"), asked("2")]
    only.task.cancel()


async def test_what_nobody_hears_waits_for_the_listener_and_the_oldest_goes() -> None:
    link, _ = linked(max_loose=3)
    for ident in "12345":
        link.receive(asked(ident))
    assert link.dropped == 2
    listener = await listen(link)
    assert listener.got == [asked("3"), asked("4"), asked("5")]
    newer = await listen(link)
    await listener.task
    link.receive(LOG)
    await turns()
    assert newer.got == [LOG]
    link.end("gone")
    await newer.task


async def test_I10_a_call_that_is_not_fetched_ends_and_does_not_hold_up_others() -> None:
    link, _ = linked(max_inbox=500)
    slow = link.exchange(call("1", "1"), [])
    step = asyncio.create_task(anext(slow))
    await turns()
    link.receive(progress("1"))
    await step
    for ident in range(10):
        link.receive(asked(f'"s{ident}"'))
    other = await exchange(link, call("2"))
    link.receive(result("2"))
    await other.task
    with pytest.raises(UpstreamLost, match="more than 500 bytes"):
        while True:
            await anext(slow)


async def test_I10_a_flood_of_news_costs_a_call_the_news_and_not_its_result() -> None:
    link, _ = linked(max_inbox=500)
    slow = link.exchange(call("1", "1"), [])
    step = asyncio.create_task(anext(slow))
    await turns()
    for _ in range(1000):
        link.receive(progress("1"))
    link.receive(result("1"))
    got = [await step, *[message async for message in slow]]
    assert got[-1] == result("1")
    assert len(got) < 20


async def test_I5_calls_in_flight_fail_with_the_reason_when_the_link_ends() -> None:
    link, _ = linked()
    running = await exchange(link, call("1"))
    begins = await exchange(link, call("2", method="initialize"))
    link.end("the upstream process exited with code 3")
    with pytest.raises(UpstreamLost, match=r"^the upstream process exited with code 3 during the call$"):
        await running.task
    with pytest.raises(UpstreamLost, match=r"code 3 before it answered initialize$"):
        await begins.task
    assert not link.alive
    with pytest.raises(UpstreamLost) as caught:
        await link.send(LOG, [])
    assert not caught.value.sent


async def test_an_id_in_flight_is_refused_and_free_again_afterwards() -> None:
    link, _ = linked()
    running = await exchange(link, call("1"))
    with pytest.raises(Refusal, match="the id is in use"):
        await anext(link.exchange(call("1"), []))
    link.receive(result("1"))
    await running.task
    again = await exchange(link, call("1"))
    link.receive(result("1"))
    await again.task
    assert again.got == [result("1")]


async def test_a_request_that_does_not_leave_fails_its_call() -> None:
    link, tape = linked()
    tape.left = asyncio.get_running_loop().create_future()
    running = await exchange(link, call("1"))
    tape.left.set_exception(UpstreamLost("refused", status=400))
    with pytest.raises(UpstreamLost, match="refused"):
        await running.task


async def test_noise_and_batches_are_taken_apart(caplog: pytest.LogCaptureFixture) -> None:
    link, _ = linked()
    running = await exchange(link, call("1"))
    for noise in (b"Server started", b"{}", b"[]", b'{"jsonrpc":"1.0"}', b"\xff\xfe"):
        link.receive(noise)
    link.receive(b"[" + LOG + b"," + result("1") + b"]")
    await running.task
    assert running.got == [LOG, result("1")]
    assert "Server started" not in caplog.text
    assert [one.getMessage() for one in caplog.records] == [
        f"link t: {count} lines that are not JSON-RPC were skipped" for count in (1, 2, 4)
    ]


async def test_idle_counts_from_the_last_use() -> None:
    now = 0.0
    link, tape = MessageLink("t", lambda: now), Tape()
    link.attach(tape)
    now = 5.0
    assert link.idle() == 5.0
    running = await exchange(link, call("1"))
    assert link.idle() == 0.0
    link.receive(result("1"))
    await running.task
    now = 7.0
    assert link.idle() == 2.0


def test_lines_are_whole_and_bounded() -> None:
    lines = Lines(10)
    assert lines.feed(b"ab") == []
    assert lines.feed(b"c\r\n\n  \nde\nf") == [b"abc", b"de"]
    assert lines.feed(b"\n") == [b"f"]
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        lines.feed(b"x" * 11)
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        Lines(10).feed(b"x" * 11 + b"\n")


def test_I1_an_outgoing_message_becomes_one_line_and_else_stays_as_it_is() -> None:
    assert one_line(b'{"a": 1.0,  "b":"\\n"}') == b'{"a": 1.0,  "b":"\\n"}'
    assert one_line(b'{\r\n "a": 1\n}') == b'{   "a": 1 }'
