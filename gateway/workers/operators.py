"""What operators see of all workers together: metrics added up, readiness told of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

from gateway.observe.metrics import WORKER_STATES, WorkerMetrics
from gateway.observe.sums import Sums, families
from gateway.workers.process import WorkerProcess
from gateway.workers.slot import Slot

ANSWER_SECONDS: Final = 2.0
READY_SECONDS: Final = 3.0


class Operators:
    """Answers for the admin port. `stopping` tells whether the supervisor is about to end."""

    def __init__(self, slots: Sequence[Slot], sums: Sums, stopping: Callable[[], bool]) -> None:
        self._slots = slots
        self._sums = sums
        self._stopping = stopping
        self._own = WorkerMetrics()

    async def metrics(self) -> bytes:
        """Return the text of all metrics; a worker that does not answer counts with what it told last."""
        await self.refresh()
        self._count()
        # Who ended while others were asked is in the sums already.
        living = [process.last for process in self._processes()]
        return self._sums.render([families(self._own.registry), *living])

    def count_refusal(self) -> None:
        """Count a new configuration that no worker was shown."""
        self._own.reloads.labels("refused").inc()

    async def refresh(self) -> None:
        """Ask each worker for its metrics, so that what it has counted is known should it die."""
        await asyncio.gather(*(process.metrics(ANSWER_SECONDS) for process in self._processes()))

    async def readiness(self, exclude: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the readiness: there is one ready worker at least. The words of each are beneath."""
        told = await asyncio.gather(*(self._told(slot, frozenset(exclude)) for slot in self._slots))
        answers = [one for one in told if "ready" in one]
        ready = not self._stopping() and any(one["ready"] for one in answers)
        return {
            "ready": ready,
            **_best(answers),
            "draining": self._stopping(),
            "serving": any(one["serving"] for one in answers),
            "workers": {str(slot.number): one for slot, one in zip(self._slots, told, strict=True)},
        }

    def _processes(self) -> list[WorkerProcess]:
        return [slot.process for slot in self._slots if slot.process is not None]

    async def _told(self, slot: Slot, exclude: frozenset[str]) -> dict[str, Any]:
        process, state = slot.process, state_of(slot)
        if process is None:
            return {"state": state}
        named = {"state": state, "process": process.pid, "replica": process.replica}
        found = await process.ready(exclude, READY_SECONDS)
        return {**named, **(found or {})}

    def _count(self) -> None:
        states = [state_of(slot) for slot in self._slots]
        for state in WORKER_STATES:
            self._own.workers.labels(state).set(states.count(state))
        for slot in self._slots:
            number = str(slot.number)
            connections = 0 if slot.process is None else slot.process.connections
            self._own.connections.labels(number).set(connections)
            counter = self._own.restarts.labels(number)
            counter.reset()
            counter.inc(slot.restarts)


def state_of(slot: Slot) -> str:
    """Return one of the states that operators are told of."""
    process = slot.process
    if process is None or process.state in ("closed", "ended"):
        return "leaving" if process is not None and process.state == "closed" else "down"
    return "silent" if process.silent else process.state


def _best(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what is known of store and upstreams: good where one worker says so."""
    found: dict[str, Any] = {}
    for one in answers:
        if "store" in one and found.get("store") != "ok":
            found["store"] = one["store"]
        if "upstreams" in one:
            known = found.setdefault("upstreams", {})
            known.update(
                {name: words for name, words in one["upstreams"].items() if known.get(name) != "ok"}
            )
    return found
