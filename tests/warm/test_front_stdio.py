"""The stdio door: lines in, lines out, whatever the two ends are (I10, I12)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.front.stdio import StdioDoor

LIMIT = 2_000


class Lines:
    """Keeps what it takes; slow where a test wants it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.gate: asyncio.Event | None = None

    async def take(self, raw: bytes) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.taken.append(raw)


class Pipes:
    """A door between two pipes."""

    def __init__(self) -> None:
        self.theirs_in, self.ours_in = os.pipe()
        self.ours_out, self.theirs_out = os.pipe()
        self.door = StdioDoor(LIMIT, self.theirs_in, self.theirs_out)
        self.lines = Lines()

    async def read(self, *parts: bytes) -> list[bytes]:
        """Write parts one after the other, end the input, and return the lines that were taken."""
        reading = asyncio.create_task(self.door.read_all(self.lines))
        for part in parts:
            await asyncio.to_thread(_write, self.ours_in, part)
            await asyncio.sleep(0)
        os.close(self.ours_in)
        self.ours_in = -1
        await asyncio.wait_for(reading, 5)
        return self.lines.taken

    async def written(self) -> list[dict[str, object]]:
        """Return what the door has written."""
        os.set_blocking(self.ours_out, False)
        try:
            data = os.read(self.ours_out, 1 << 20)
        except BlockingIOError:
            data = b""
        return [json.loads(line) for line in data.splitlines()]

    def close(self) -> None:
        for descriptor in (self.ours_in, self.ours_out, self.theirs_out):
            if descriptor >= 0:
                os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@pytest.fixture
async def pipes() -> AsyncIterator[Pipes]:
    one = Pipes()
    await one.door.open()
    yield one
    writer = one.door._writer  # pyright: ignore[reportPrivateUsage] - it has no close of its own
    if writer is not None:
        writer.close()
        await asyncio.sleep(0)
    one.close()


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"on", b"e\nt", b"wo\n"], [b"one", b"two"]),
        ([b"one\r\ntwo\r\n"], [b"one", b"two"]),
        ([b"one\r", b"\ntwo\n"], [b"one", b"two"]),
        ([b"\n\n  \n\r\none\n"], [b"one"]),
        ([b"one\nhalf"], [b"one", b"half"]),
        ([b"half\r"], [b"half"]),
        ([b""], []),
        ([b"\xff\xfe\x00\n"], [b"\xff\xfe\x00"]),
        ([b"x" * LIMIT + b"\n"], [b"x" * LIMIT]),
    ],
)
async def test_lines_are_taken_however_they_are_cut(
    pipes: Pipes, parts: list[bytes], lines: list[bytes]
) -> None:
    assert [line.rstrip(b"\r") for line in await pipes.read(*parts)] == lines
    assert await pipes.written() == []


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT * 10, 600_000])
async def test_I10_a_line_that_is_too_long_is_refused_once_and_the_next_is_taken(
    pipes: Pipes, size: int
) -> None:
    assert await pipes.read(b"before\n", b"x" * size + b"\n", b"after\n") == [b"before", b"after"]
    (refused,) = await pipes.written()
    error = refused["error"]
    assert isinstance(error, dict)
    assert error["message"] == f"Limit reached: the line is longer than request_bytes ({LIMIT} bytes)"


async def test_I10_a_long_line_without_an_end_takes_no_room(pipes: Pipes) -> None:
    assert await pipes.read(b"before\n", *[b"x" * 60_000] * 20) == [b"before"]


async def test_messages_are_written_as_one_line_each(pipes: Pipes) -> None:
    messages = [b'{"a":\n1}', b'{"b":\r\n2}', b'{"c":3}']
    await asyncio.gather(*(pipes.door.write(message) for message in messages))
    assert await pipes.written() == [{"a": 1}, {"b": 2}, {"c": 3}]


async def test_a_writer_waits_for_a_client_that_does_not_read(pipes: Pipes) -> None:
    message = json.dumps({"x": "y" * 70_000}).encode()

    async def flood() -> None:
        for _ in range(20):
            await pipes.door.write(message)

    writing = asyncio.create_task(flood())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not writing.done()
    got = 0
    async with asyncio.timeout(5):
        while not writing.done() or got < 20 * (len(message) + 1):
            got += len(await asyncio.to_thread(os.read, pipes.ours_out, 1 << 20))
    await writing


async def test_a_taker_that_is_slow_holds_the_input_back(pipes: Pipes) -> None:
    pipes.lines.gate = asyncio.Event()
    reading = asyncio.create_task(pipes.door.read_all(pipes.lines))
    os.set_blocking(pipes.ours_in, False)
    wrote = 0
    for _ in range(1_000):
        try:
            wrote += os.write(pipes.ours_in, (b"x" * 999 + b"\n") * 10)
        except BlockingIOError:
            await asyncio.sleep(0)
    assert wrote < 2_000_000
    pipes.lines.gate.set()
    os.set_blocking(pipes.ours_in, True)
    os.close(pipes.ours_in)
    pipes.ours_in = -1
    await asyncio.wait_for(reading, 5)
    assert sum(len(line) + 1 for line in pipes.lines.taken) >= wrote - 1_000


async def test_files_serve_as_well_as_pipes(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"one\r\ntwo\n" + b"x" * (LIMIT + 1) + b"\nhalf")
    lines = Lines()
    with source.open("rb") as reading, target.open("wb") as writing:
        door = StdioDoor(LIMIT, reading.fileno(), writing.fileno())
        await door.open()
        await door.read_all(lines)
        await door.write(b'{"done":true}')
    assert lines.taken == [b"one", b"two", b"half"]
    refused, done = [json.loads(line) for line in target.read_bytes().splitlines()]
    assert "request_bytes" in refused["error"]["message"]
    assert done == {"done": True}


@pytest.mark.parametrize("opened", [lambda: os.open(os.devnull, os.O_RDONLY)])
async def test_dev_null_is_an_input_that_has_ended(opened: Callable[[], int]) -> None:
    descriptor, target = opened(), os.open(os.devnull, os.O_WRONLY)
    try:
        door, lines = StdioDoor(LIMIT, descriptor, target), Lines()
        await door.open()
        await asyncio.wait_for(door.read_all(lines), 5)
        await asyncio.wait_for(door.write(b"{}"), 5)
        assert lines.taken == []
    finally:
        os.close(descriptor)
        os.close(target)


async def test_a_client_that_has_closed_its_end_is_an_error_of_the_connection(pipes: Pipes) -> None:
    os.close(pipes.ours_out)
    pipes.ours_out = -1
    with pytest.raises(ConnectionError):
        for _ in range(1_000):
            await pipes.door.write(b'{"x":1}')
            await asyncio.sleep(0)
