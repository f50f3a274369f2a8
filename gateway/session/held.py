"""Calls of the stateless era that wait for their client to come back with input.

Such a call is kept as a task that nobody is told of: its questions, its answers and its end are the
store's, so that the retry may come to any replica, and nothing of it stays when the client does not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.bridge.inputs import input_required
from gateway.bridge.results import error_to_stateless
from gateway.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from gateway.protocol.envelope import dump, error_response, members, response, text_of
from gateway.protocol.errors import GatewayError, Refusal, StoreAway
from gateway.protocol.stateless import missing_capability
from gateway.service.early import Early
from gateway.service.hub import State
from gateway.service.running import Running
from gateway.service.service import TaskService
from gateway.session.asked import Asked
from gateway.session.begin import Beginning, Making
from gateway.session.exchange import KEEP_ALIVE, KEEP_ALIVE_SECONDS, Wire
from gateway.session.infos import Infos
from gateway.session.states import States
from gateway.session.visit import Visit
from gateway.tasks.call import Heard
from gateway.tasks.inputs import CAPABILITIES, answers_of, input_requests, own_key
from gateway.tasks.model import Outcome, Task, TaskKey

_QUIET_SECONDS: Final = 0.04
_MORE: Final = 64


class HeldCalls:
    """Holds calls, and takes them up again when their client does."""

    def __init__(
        self, service: TaskService, beginning: Beginning, states: States, infos: Infos, clock: Clock
    ) -> None:
        self._service = service
        self._beginning = beginning
        self._states = states
        self._infos = infos
        self._clock = clock
        self._crew = Crew("held calls")
        self._attending = Counter[TaskKey]()

    def __repr__(self) -> str:
        return f"<HeldCalls, {len(self._crew)} at work>"

    async def hold(
        self, asked: Asked, early: Early, heard: Heard, *, promised: bool
    ) -> AsyncGenerator[Wire | bytes, None]:
        """Hold a call whose upstream asks its client something, and tell the client what.

        `promised` says that the call may be answered with a task later on.
        """
        try:
            coming = [heard, *await _more(early)]
        except BaseException:
            await early.let_go("the client has gone")
            raise
        for more in coming:
            early.put_back(more)
        within = asked.visit.served.answer_within
        making = Making(
            early.channel, early.message, asked.askable, early, not promised, within, caller=asked.caller
        )
        try:
            running = await self.make(asked.visit, making)
        except GatewayError:
            early.cancel("the client cannot be asked")
            raise
        async with aclosing(self._told(asked, running.task.key, None, owns=True)) as items:
            async for item in items:
                yield item
                if isinstance(item, Wire):
                    return
        raise Refusal(INTERNAL_ERROR, "The call is gone: it was given up, or its store was emptied")

    def holds(self, asked: Asked) -> bool:
        """Tell whether a request is the retry of a held call, and none that the upstream asked for."""
        raw = asked.visit.request.raw
        if b"requestState" not in raw and b"\\u" not in raw:
            return False
        state = text_of(members(asked.visit.request.params).get("requestState"))
        return state is not None and self._states.made(asked.visit, state)

    async def resume(
        self, asked: Asked, state: str, answers: Mapping[str, bytes]
    ) -> AsyncGenerator[Wire | bytes, None]:
        """Bring a client's input to its call and yield what comes of it; raise `Refusal`."""
        yield b""
        key = self._states.open(asked.visit, state)
        task = await self._service.get(key)
        if task is None:
            raise _unknown()
        found = answers_of(task, answers, own_key)
        try:
            for relay, message in found.items():
                await self._service.answer(key.scope, relay, message)
        except asyncio.CancelledError:
            # The question is answered, and nobody waits for what comes of it.
            self._crew.spawn(self._give_up(key), "give up")
            raise
        policy = asked.visit.policy
        window = policy.inline_within / 1000 if task.dialect == "c" and asked.declared else None
        # Who brings nothing new only looks on: the call may be a task by now that another was told of.
        owns = bool(found) or task.dialect != "c"
        async with aclosing(self._told(asked, key, window, owns=owns)) as items:
            async for item in items:
                yield item
                if isinstance(item, Wire):
                    return
        raise _unknown()

    async def make(self, visit: Visit, making: Making) -> Running:
        """Make a task of a request, whole or not at all; raise `Refusal`, `StoreAway`.

        A client that leaves meanwhile has not heard of it: it is taken back then.
        """
        work = self._crew.spawn(self._made(visit, making), "make")
        try:
            found = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(partial(self._take_back, making.early))
            raise
        if isinstance(found, GatewayError):
            raise found
        return found

    async def _made(self, visit: Visit, making: Making) -> Running | GatewayError:
        try:
            return await self._beginning.make(visit, making)
        except GatewayError as wrong:
            return wrong

    def _take_back(self, early: Early | None, work: asyncio.Task[Running | GatewayError]) -> None:
        found = None if work.cancelled() or work.exception() is not None else work.result()
        if isinstance(found, Running):
            self._crew.spawn(self._give_up(found.task.key), "take back")
        elif early is not None:
            early.cancel("the client has gone")

    async def close(self) -> None:
        """Let go of everything."""
        await self._crew.close()

    async def _told(
        self, asked: Asked, key: TaskKey, window: float | None, *, owns: bool
    ) -> AsyncGenerator[Wire | bytes, None]:
        """Yield the end of the call, its next questions, or, after `window` seconds, its task.

        Ends without any of them where the call is gone. Who `owns` it gives it up by leaving, and
        takes it away by hearing its end.
        """
        told = False
        self._attending[key] += 1
        until = None if window is None else self._clock.monotonic() + window
        patience = KEEP_ALIVE_SECONDS if window is None else max(0.001, min(window, KEEP_ALIVE_SECONDS))
        try:
            async with aclosing(self._service.readers.wait(key, patience)) as states:
                async for state in states:
                    if state is None and (until is None or self._clock.monotonic() < until):
                        yield KEEP_ALIVE
                        continue
                    message = await self._message(asked, key, state, owns=owns)
                    if message is not None:
                        told = True
                        yield Wire(message, last=True)
                        return
        finally:
            self._attending[key] -= 1
            if not self._attending[key]:
                del self._attending[key]
                # Another retry of the same call may wait for it yet.
                if owns and not told:
                    self._crew.spawn(self._give_up(key), "give up")

    async def _message(
        self, asked: Asked, key: TaskKey, state: State | None, *, owns: bool
    ) -> bytes | None:
        if state is None:
            task = await self._service.get(key)
            return None if task is None or task.ended else asked.extension.created(task)
        task, outcome = state
        if task.ended:
            if owns:
                self._crew.spawn(self._give_up(key), "forget")
            return await self._final(asked, task, outcome)
        if not task.pending:
            return None
        task = await self._settled(task) or task
        if beyond := {one.method for one in task.pending} - asked.askable:
            raise missing_capability({CAPABILITIES[one]: {} for one in sorted(beyond)})
        within = asked.visit.served.answer_within
        state_text = self._states.seal(asked.visit, key, within)
        return response(asked.ident, input_required(input_requests(task, own_key), state_text))

    async def _settled(self, task: Task) -> Task | None:
        """Return the task when it has asked all that it asks at once."""
        await self._clock.sleep(_QUIET_SECONDS)
        found = await self._service.get(task.key)
        return found if found is not None and found.pending else None

    async def _final(self, asked: Asked, task: Task, outcome: Outcome | None) -> bytes:
        if outcome is not None and outcome.result is not None:
            return asked.respond(outcome.result, await self._infos.of(asked))
        if outcome is not None and outcome.rpc_error is not None:
            return error_response(asked.ident, error_to_stateless(outcome.rpc_error))
        words = task.error or "the outcome is unknown"
        return error_response(asked.ident, dump({"code": INTERNAL_ERROR, "message": words}))

    async def _give_up(self, key: TaskKey) -> None:
        """Remove a call, which ends it where it still runs."""
        with suppress(StoreAway):
            await self._service.remove(key)


def _unknown() -> Refusal:
    return Refusal(INVALID_PARAMS, "requestState is not known any more: send the request anew")


async def _more(early: Early) -> list[Heard]:
    """Return what the upstream says while it has not been quiet: questions often come together."""
    found: list[Heard] = []
    while len(found) < _MORE:
        heard = await early.next(_QUIET_SECONDS)
        if heard is None:
            return found
        found.append(heard)
        if heard.kind == "final":
            return found
    return found
