"""The parts of a supervisor: sums, pauses, the doorman's choice, signals, and log lines that stay whole."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.config.kinds import WORKERS
from gateway.config.model import Config, StoreConfig
from gateway.observe.logs import JsonLines, whole_lines
from gateway.observe.metrics import PREFIX, Metrics
from gateway.observe.sums import Family, Series, Sums, families
from gateway.workers.doorman import Doorman, bind
from gateway.workers.hearing import hear
from gateway.workers.line import Line
from gateway.workers.messages import Beat, Serving, ToSupervisor
from gateway.workers.number import number_of, usable_cores, worker_mistakes
from gateway.workers.slot import LONGEST_SECONDS, pause_after


def values(rendered: bytes) -> dict[str, float]:
    """Return what a scrape finds, by name and labels."""
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(rendered.decode())
        for sample in family.samples
    }


def a_worker(requests: int, sessions: int) -> Metrics:
    """Return the metrics of a process that has counted something."""
    metrics = Metrics("1", ["a"], [])
    metrics.requests.labels("a", "ping", "200").inc(requests)
    metrics.sessions_now.labels("a").set(sessions)
    metrics.store_seconds.labels("create").observe(0.002)
    return metrics


def test_counters_gauges_and_histograms_are_added_up_and_keep_their_labels() -> None:
    found = values(Sums().render([families(a_worker(2, 3).registry), families(a_worker(5, 4).registry)]))
    assert found[f"{PREFIX}requests_total ping 200 a"] == 7
    assert found[f"{PREFIX}sessions a"] == 7
    assert found[f"{PREFIX}store_operation_seconds_count create"] == 2
    assert found[f"{PREFIX}store_operation_seconds_bucket 0.001 create"] == 0
    assert found[f"{PREFIX}store_operation_seconds_bucket 0.0025 create"] == 2


def test_the_sum_of_one_is_what_that_one_shows() -> None:
    metrics = a_worker(2, 3)
    alone = {name: value for name, value in values(metrics.render()).items() if name.startswith(PREFIX)}
    summed = values(Sums().render([families(metrics.registry)]))
    assert {name: value for name, value in summed.items() if name.startswith(PREFIX)} == alone


def test_what_is_the_same_in_all_is_not_added_up() -> None:
    one, two = a_worker(1, 1), a_worker(1, 1)
    found = values(Sums().render([families(one.registry), families(two.registry)]))
    assert [value for name, value in found.items() if name.startswith(f"{PREFIX}build_info")] == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="the client knows processes on Linux")
def test_processes_are_added_up_and_the_first_start_is_theirs() -> None:
    def of_process(cpu: float, began: float) -> list[Family]:
        return [
            Family("process_cpu_seconds", "counter", "", [Series("process_cpu_seconds_total", (), cpu)]),
            Family(
                "process_start_time_seconds", "gauge", "", [Series("process_start_time_seconds", (), began)]
            ),
        ]

    found = values(Sums().render([of_process(1, 500), of_process(2, 400)]))
    assert found == {"process_cpu_seconds_total": 3, "process_start_time_seconds": 400}


def test_what_the_dead_have_counted_stays_and_their_gauges_go() -> None:
    sums = Sums()
    for _ in range(2):
        sums.bury(families(a_worker(10, 100).registry))
    found = values(sums.render([families(a_worker(1, 1).registry)]))
    assert found[f"{PREFIX}requests_total ping 200 a"] == 21
    assert found[f"{PREFIX}store_operation_seconds_bucket +Inf create"] == 3
    assert found[f"{PREFIX}sessions a"] == 1


def test_the_first_restart_is_at_once_and_later_ones_wait_ever_longer_with_jitter() -> None:
    assert pause_after(0) == pause_after(1) == 0
    for deaths in range(2, 40):
        longest = min(0.5 * 2 ** (deaths - 2), LONGEST_SECONDS)
        pauses = [pause_after(deaths) for _ in range(50)]
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 10
    assert 0 < pause_after(10**9) <= LONGEST_SECONDS


def test_the_number_of_workers_comes_from_the_command_line_the_file_or_the_machine() -> None:
    assert WORKERS.read("auto") == WORKERS.read(0) == 0
    assert number_of(Config()) == 1
    assert number_of(Config(workers=3)) == 3
    assert number_of(Config(workers=3), 2) == 2
    assert number_of(Config(workers=3), 0) == number_of(Config(workers=0)) == usable_cores()
    for wrong in (-1, 257, "many", 1.5, True, None):
        with pytest.raises(ValueError, match=r"."):
            WORKERS.read(wrong)


def test_only_a_store_in_memory_forbids_workers() -> None:
    shared = Config(workers=2, store=StoreConfig.model_validate({"url": "redis://localhost"}))
    assert list(worker_mistakes(shared)) == []
    assert list(worker_mistakes(Config())) == []
    assert list(worker_mistakes(Config(workers=2), 1)) == []
    ((place, words),) = worker_mistakes(Config(workers=2))
    assert place == ("workers",)
    assert "memory://" in words


def test_a_free_port_is_one_for_all_addresses_of_a_host() -> None:
    doors = bind("localhost", 0)
    try:
        assert len({door.getsockname()[1] for door in doors}) == 1
        assert doors[0].getsockname()[1] > 0
        doors[0].listen()
        with pytest.raises(OSError, match=r"."):
            bind("localhost", doors[0].getsockname()[1])
    finally:
        for door in doors:
            door.close()


class Place:
    """A worker as the doorman sees it."""

    def __init__(self, state: str = "serving", silent: float = 0.0, full: bool = False) -> None:
        self.state = state
        self.silent = silent
        self.full = full
        self.taken: list[socket.socket] = []

    @property
    def connections(self) -> int:
        """How many it has."""
        return len(self.taken)

    def hand(self, connection: socket.socket) -> bool:
        """Take a connection, unless full."""
        if not self.full:
            self.taken.append(connection)
        return not self.full

    def release(self, number: int) -> None:
        """Let so many go."""
        for _ in range(number):
            self.taken.pop().close()


class World:
    """A doorman and those it hands connections to."""

    def __init__(self) -> None:
        self.takers: list[Place] = []
        self.doorman = Doorman(bind("127.0.0.1", 0), lambda: self.takers)
        self._clients: list[asyncio.StreamWriter] = []

    async def serve(self, *takers: Place) -> None:
        """Let these serve from now on."""
        self.takers[:] = takers
        self.doorman.look()

    async def come(self, number: int) -> list[int]:
        """Let so many clients come one after another; return how many each taker has."""
        for _ in range(number):
            before = sum(taker.connections for taker in self.takers)
            _, writer = await asyncio.open_connection("127.0.0.1", self.doorman.port)
            self._clients.append(writer)
            async with asyncio.timeout(5):
                while True:
                    if sum(taker.connections for taker in self.takers) > before:
                        break
                    await asyncio.sleep(0.001)
        return [taker.connections for taker in self.takers]

    async def close(self) -> None:
        """Let go of all."""
        self.doorman.close()
        for taker in self.takers:
            taker.release(taker.connections)
        for writer in self._clients:
            writer.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return a doorman with nobody behind."""
    made = World()
    yield made
    await made.close()


async def test_the_next_connection_goes_to_who_has_the_fewest(world: World) -> None:
    await world.serve(Place(), Place(), Place())
    assert await world.come(9) == [3, 3, 3]
    world.takers[1].release(3)
    assert await world.come(3) == [3, 3, 3]


async def test_who_leaves_or_is_silent_comes_last(world: World) -> None:
    serving, leaving, silent = Place(), Place("leaving"), Place(silent=4.0)
    await world.serve(silent, leaving, serving)
    assert await world.come(4) == [0, 0, 4]
    serving.state = "closed"
    assert await world.come(4) == [0, 4, 4]
    leaving.state = "ended"
    assert await world.come(1) == [1, 4, 4]


async def test_who_takes_nothing_more_is_passed_over(world: World) -> None:
    await world.serve(Place(full=True), Place())
    assert await world.come(3) == [0, 3]


async def test_I10_clients_wait_in_the_queue_while_nobody_takes_them(world: World) -> None:
    full = Place(full=True)
    await world.serve(full)
    coming = asyncio.get_running_loop().create_task(world.come(2))
    await asyncio.sleep(0.05)
    assert full.connections == 0
    full.full = False
    assert await coming == [2]


async def test_before_anybody_serves_clients_are_refused(world: World) -> None:
    await world.serve(Place("starting"))
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", world.doorman.port)


async def test_signals_of_one_moment_are_one_and_later_ones_are_more_urgent() -> None:
    given: list[int] = []
    told = asyncio.Event()

    def order(level: int) -> None:
        given.append(level)
        told.set()

    hear({signal.SIGUSR1: 1, signal.SIGUSR2: 2}, order)
    try:
        for numbers in ((signal.SIGUSR1, signal.SIGUSR1), (signal.SIGUSR2,), (signal.SIGUSR1,)):
            for number in numbers:
                os.kill(os.getpid(), number)
            async with asyncio.timeout(5):
                await told.wait()
            told.clear()
    finally:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert given == [1, 2, 3]


async def test_a_line_carries_messages_until_its_other_end_is_gone() -> None:
    ours, theirs = socket.socketpair()
    one = await Line[ToSupervisor].over(ours, ToSupervisor)
    two = await Line[ToSupervisor].over(theirs, ToSupervisor)
    two.say(Serving("r"))
    two.say(Beat(3, 4))
    assert await one.hear() == Serving("r")
    assert await one.hear() == Beat(3, 4)
    await two.close()
    assert await one.hear() is None
    await one.close()


async def test_a_line_ends_at_what_is_no_message() -> None:
    ours, theirs = socket.socketpair()
    line = await Line[ToSupervisor].over(ours, ToSupervisor)
    theirs.sendall(b"\x00\x00\x00\x02{}")
    assert await line.hear() is None
    await line.close()
    theirs.close()


def test_lines_of_several_workers_on_one_pipe_stay_whole() -> None:
    lines = [f"{number}" * 700 for number in range(10)]
    parts = list(whole_lines(lines))
    assert len(parts) > 1
    assert all(len(part) <= 4096 and part.endswith("\n") for part in parts)
    assert "".join(parts) == "\n".join(lines) + "\n"
    assert list(whole_lines([])) == []
    assert list(whole_lines(["x" * 5000])) == ["x" * 5000 + "\n"]


def test_a_line_names_its_worker() -> None:
    record = logging.LogRecord("gateway", logging.INFO, "", 0, "hello", None, None)
    assert '"worker":3' in JsonLines(3).format(record)
    assert "worker" not in JsonLines().format(record)
