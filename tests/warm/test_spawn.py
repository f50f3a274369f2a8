"""Tasks that have an owner: kept, told of, ended (gateway.aio.spawn)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.aio import spawn
from gateway.aio.spawn import Crew


async def test_a_failure_is_logged_with_the_names_of_crew_and_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    crew = Crew("tests")
    await asyncio.wait([crew.spawn(fails(), "failing")])
    assert len(crew) == 0
    assert "tests: failing failed" in caplog.text
    assert "ValueError: broken" in caplog.text


async def test_kept_work_begins_again_after_a_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "_AGAIN_SECONDS", 0)
    done = asyncio.Event()
    begun: list[int] = []

    async def fails_twice() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise OSError("not yet")
        done.set()

    async with Crew("tests") as crew, asyncio.timeout(5):
        crew.keep(fails_twice, "stubborn")
        await done.wait()
    assert begun == [0, 1, 2]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]


async def test_what_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_ROUND_SECONDS", 0.01)
    refused: list[str] = []

    async def stubborn() -> None:
        while len(refused) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                refused.append("no")
        await asyncio.Event().wait()

    crew = Crew("tests")
    crew.spawn(stubborn(), "stubborn")
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await crew.close()
    assert len(crew) == 0


async def test_a_drain_tells_whether_all_ended_by_themselves() -> None:
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    async with Crew("tests") as crew:
        crew.spawn(waits(), "waiting")
        assert not await crew.drain(0)
        gate.set()
        assert await crew.drain(5)
