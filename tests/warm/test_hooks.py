"""Plugins are found by their entry points, live in order, and cannot hurt the house."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.hooks.loader import known, load
from gateway.hooks.port import Plugin, TaskEnded
from gateway.hooks.run import Hooks
from gateway.protocol.errors import PluginError


def an_event(task_id: str = "t1") -> TaskEnded:
    return TaskEnded(
        upstream="reports",
        task_id=task_id,
        scope="s",
        session="x",
        dialect="a",
        method="tools/call",
        tool="render",
        status="completed",
        is_error=False,
        error=None,
        created_at=1_700_000_000_000,
        ended_at=1_700_000_001_000,
    )


class Counts:
    """What the house is told."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.dropped = 0

    def count(self, plugin: str, outcome: str) -> None:
        self.outcomes[plugin, outcome] += 1

    def drop(self) -> None:
        self.dropped += 1


class Listening(Plugin):
    """Keeps a diary of its life, common to several plugins."""

    def __init__(self, name: str, diary: list[str]) -> None:
        super().__init__({})
        self.called = name
        self.diary = diary
        self.told: float | None = None
        self.heard = asyncio.Event()

    def validate(self) -> None:
        self.diary.append(f"{self.called} validate")

    async def start(self) -> None:
        self.diary.append(f"{self.called} start")

    async def task_ended(self, event: TaskEnded) -> None:
        self.diary.append(f"{self.called} {event.task_id}")
        self.heard.set()

    async def stop(self, seconds: float) -> None:
        self.told = seconds
        self.diary.append(f"{self.called} stop")


class Failing(Listening):
    name = "failing"

    async def task_ended(self, event: TaskEnded) -> None:
        raise RuntimeError(f"broken plugin: {event.task_id}")


class Hanging(Listening):
    name = "hanging"

    async def task_ended(self, event: TaskEnded) -> None:
        self.diary.append(event.task_id)
        self.heard.set()
        await asyncio.Event().wait()


class SelfCancelling(Listening):
    name = "cancelling"

    async def task_ended(self, event: TaskEnded) -> None:
        raise asyncio.CancelledError(event.task_id)


def the_hooks(counts: Counts, *plugins: Plugin, queue: int = 10, limit: float = 1.0) -> Hooks:
    return Hooks(plugins, count=counts.count, drop=counts.drop, queue=queue, limit=limit)


async def test_plugins_validate_then_start_in_order_and_stop_in_reverse() -> None:
    diary: list[str] = []
    hooks = the_hooks(Counts(), Listening("a", diary), Listening("b", diary))
    await hooks.start()
    await hooks.stop(1)
    assert diary == ["a validate", "b validate", "a start", "b start", "b stop", "a stop"]
    assert repr(hooks) == "<Hooks 0 of 2 plugins started, 0 events waiting>"


async def test_what_is_published_is_heard_in_order_by_every_plugin_before_it_stops() -> None:
    diary: list[str] = []
    hooks = the_hooks(Counts(), Listening("a", diary), Listening("b", diary))
    await hooks.start()
    hooks.publish(an_event("t1"))
    hooks.publish(an_event("t2"))
    await hooks.stop(1)
    assert [line for line in diary if line.startswith("a ")] == [
        "a validate",
        "a start",
        "a t1",
        "a t2",
        "a stop",
    ]
    assert [line for line in diary if line.startswith("b ")] == [
        "b validate",
        "b start",
        "b t1",
        "b t2",
        "b stop",
    ]


async def test_a_wrong_option_names_the_plugin_and_starts_nothing() -> None:
    class Wrong(Listening):
        name = "wrong"

        def validate(self) -> None:
            raise PluginError("url is missing")

    diary: list[str] = []
    with pytest.raises(PluginError, match=r"^plugin wrong: url is missing$"):
        await the_hooks(Counts(), Listening("a", diary), Wrong("w", diary)).start()
    assert diary == ["a validate"]


async def test_a_plugin_that_does_not_start_stops_itself_and_those_before_it() -> None:
    class Unstartable(Listening):
        name = "unstartable"

        async def start(self) -> None:
            raise OSError("port in use")

    diary: list[str] = []
    hooks = the_hooks(Counts(), Listening("a", diary), Unstartable("u", diary), Listening("c", diary))
    with pytest.raises(PluginError, match=r"^plugin unstartable: port in use$"):
        await hooks.start()
    assert diary[3:] == ["a start", "u stop", "a stop"]


async def test_a_plugin_that_hangs_at_its_start_is_given_up() -> None:
    class Slow(Listening):
        name = "slow"

        async def start(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(PluginError, match=r"^plugin slow: did not start within 0\.01 s$"):
        await the_hooks(Counts(), Slow("s", [])).start(0.01)


async def test_I10_one_plugin_that_fails_cancels_itself_or_hangs_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts = Counts()
    listener = Listening("b", [])
    broken = (Failing("f", []), Hanging("h", []), SelfCancelling("c", []))
    hooks = the_hooks(counts, *broken, listener, limit=0.02)
    await hooks.start()
    hooks.publish(an_event("t1"))
    hooks.publish(an_event("t2"))
    await hooks.stop(5)
    assert counts.outcomes == {
        ("failing", "failed"): 2,
        ("hanging", "timed_out"): 2,
        ("cancelling", "failed"): 2,
        ("Listening", "heard"): 2,
    }
    assert "broken plugin" in caplog.text
    assert "plugin hanging took too long" in caplog.text


async def test_I10_a_full_queue_loses_its_oldest_event_and_counts_it() -> None:
    counts = Counts()
    diary: list[str] = []
    hooks = the_hooks(counts, Listening("a", diary), queue=2)
    for task_id in ("t1", "t2", "t3"):
        hooks.publish(an_event(task_id))
    await hooks.start()
    await hooks.stop(1)
    assert diary == ["a validate", "a start", "a t2", "a t3", "a stop"]
    assert counts.dropped == 1


async def test_an_event_after_the_stop_is_counted_as_dropped() -> None:
    counts = Counts()
    hooks = the_hooks(counts, Listening("a", []))
    await hooks.start()
    await hooks.stop(1)
    hooks.publish(an_event())
    assert counts.dropped == 1


async def test_a_stop_without_time_counts_what_a_slow_plugin_has_not_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts = Counts()
    slow = Hanging("h", [])
    hooks = the_hooks(counts, slow, limit=60)
    await hooks.start()
    for task_id in ("t1", "t2", "t3"):
        hooks.publish(an_event(task_id))
    await slow.heard.wait()
    await hooks.stop(0)
    assert counts.dropped == 2
    assert "2 events are lost" in caplog.text


async def test_each_plugin_is_told_its_share_of_the_time_and_an_overstayer_is_cut_off() -> None:
    class Overstaying(Listening):
        name = "overstaying"

        async def stop(self, seconds: float) -> None:
            self.told = seconds
            await asyncio.Event().wait()

    first, last = Listening("a", []), Overstaying("z", [])
    hooks = the_hooks(Counts(), first, last, limit=0.02)
    await hooks.start()
    async with asyncio.timeout(5):
        await hooks.stop(0.04)
    assert last.told is not None
    assert last.told <= 0.02
    assert first.told is not None


async def test_the_house_runs_a_plugins_own_work_and_ends_it_after_the_stop() -> None:
    class Working(Listening):
        async def run(self) -> None:
            self.diary.append("w runs")
            try:
                await asyncio.Event().wait()
            finally:
                self.diary.append("w ends")

    working = Working("w", [])
    hooks = the_hooks(Counts(), working)
    await hooks.start()
    hooks.publish(an_event("t1"))
    await hooks.stop(1)
    assert working.diary == ["w validate", "w start", "w runs", "w t1", "w stop", "w ends"]


async def test_a_plugins_own_work_that_fails_is_logged_and_events_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Crashing(Listening):
        async def run(self) -> None:
            raise RuntimeError("worker crashed")

    crashing = Crashing("c", [])
    hooks = the_hooks(Counts(), crashing)
    with caplog.at_level(logging.ERROR, "gateway.aio"):
        await hooks.start()
        hooks.publish(an_event("t1"))
        await hooks.stop(1)
    assert "worker crashed" in caplog.text
    assert "c t1" in crashing.diary


async def test_a_plugins_own_words_are_counted_under_its_name() -> None:
    counts = Counts()
    plugin = Failing("f", [])
    the_hooks(counts, plugin)
    plugin.count("delivered")
    assert counts.outcomes == {("failing", "delivered"): 1}


MODULE = """
from gateway.hooks.port import Plugin

class Good(Plugin):
    name = "good"

class Bad(Plugin):
    def __init__(self, options):
        raise KeyError("colour")

NotAPlugin = 7
"""


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution that is installed as others are: a folder with metadata on the path."""
    (tmp_path / "field_plugins.py").write_text(MODULE)
    for number, lines in enumerate(
        (
            ["good = field_plugins:Good", "bad = field_plugins:Bad", "seven = field_plugins:NotAPlugin"],
            ["missing = field_plugins:Missing", "twice = field_plugins:Good"],
            ["twice = field_plugins:Bad"],
        )
    ):
        info = tmp_path / f"field_plugins_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: field-plugins-{number}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text("\n".join(["[mcp_task_gateway.plugins]", *lines]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("field_plugins", None)


@pytest.mark.usefixtures("doors")
def test_plugins_are_constructed_in_the_order_given_each_with_its_own_options() -> None:
    options: list[dict[str, Any]] = [{"url": "one"}, {"url": "two"}]
    found = load([("good", options[0]), ("good", options[1])])
    assert [plugin.options for plugin in found] == options
    assert found[0] is not found[1]


@pytest.mark.usefixtures("doors")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("webhok", r"there is no plugin called 'webhok'; known: .*\bgood, .*seven"),
        ("bad", r"plugin 'bad' cannot be constructed: 'colour'"),
        ("seven", r"plugin 'seven' \(field_plugins:NotAPlugin\) is not a gateway\.hooks\.port\.Plugin"),
        ("missing", r"plugin 'missing' \(field_plugins:Missing\) cannot be imported"),
        ("twice", r"several plugins are called 'twice': field_plugins:Bad, field_plugins:Good"),
    ],
)
def test_I12_a_plugin_that_cannot_be_had_is_refused_by_name(name: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        load([(name, {})])


def test_the_houses_own_plugin_comes_through_the_same_door() -> None:
    assert "webhook" in known()
    (webhook,) = load([("webhook", {"url": "https://example.com"})])
    assert webhook.name == "webhook"
