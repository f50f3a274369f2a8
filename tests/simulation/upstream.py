"""The upstream of the simulation: it keeps a log of what it ran, talks while it works, and is cut off."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from gateway.aio.spawn import Crew
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.upstream.port import Placed
from tests.simulation.network import Way

Json = dict[str, Any]
_TALK: Final = ("progress", "log", "ask")


class Execution:
    """One call that the upstream runs, with all that it has said of it."""

    def __init__(self, nonce: str, ident: str) -> None:
        self.nonce = nonce
        self.ident = ident
        self.said: list[bytes] = []
        self.answers: defaultdict[str, int] = defaultdict(int)
        self.cancelled = asyncio.Event()
        self.done = False
        self._news = asyncio.Condition()

    async def say(self, message: Json, *, last: bool = False) -> None:
        """Say one message."""
        async with self._news:
            self.said.append(json.dumps({"jsonrpc": "2.0", **message}).encode())
            self.done = self.done or last
            self._news.notify_all()

    async def after(self, place: int) -> bytes | None:
        """Wait for the message after so many; `None` where there is none."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.said) > place or self.done)
            return self.said[place] if len(self.said) > place else None


class SimUpstream:
    """Runs each call as often as it is sent; `numbers` says whether its streams can be resumed."""

    def __init__(self, way: Way, *, numbers: bool, talk: int = 3) -> None:
        self.way = way
        self.numbers = numbers
        self._talk = talk
        self._crew = Crew("upstream")
        self.executions: defaultdict[str, list[Execution]] = defaultdict(list)
        self._by_ident: dict[str, Execution] = {}
        self._asked: dict[str, tuple[Execution, asyncio.Event]] = {}
        self._counter = 0
        self.strays: list[Json] = []

    def begin(self, message: bytes) -> Execution:
        """Run a call."""
        request = json.loads(message)
        execution = Execution(request["params"]["arguments"]["nonce"], request["id"])
        self.executions[execution.nonce].append(execution)
        self._by_ident[execution.ident] = execution
        self._crew.spawn(self._work(execution), execution.nonce)
        return execution

    def find(self, ident: str) -> Execution | None:
        """Return the execution of a request, `None` where it is not known."""
        return self._by_ident.get(ident)

    def hear(self, message: bytes) -> None:
        """Take a response or a notification."""
        heard = json.loads(message)
        if heard.get("method") == "notifications/cancelled":
            found = self._by_ident.get(heard["params"]["requestId"])
            if found is not None:
                found.cancelled.set()
            return
        asked = self._asked.get(heard.get("id", ""))
        if asked is None:
            self.strays.append(heard)
            return
        asked[0].answers[heard["id"]] += 1
        asked[1].set()

    async def close(self) -> None:
        """End all that runs."""
        await self._crew.close()

    async def _work(self, execution: Execution) -> None:
        random = self.way.random
        for number in range(random.randrange(self._talk + 1)):
            await asyncio.sleep(random.expovariate(2.0))
            if execution.cancelled.is_set():
                break
            match random.choice(_TALK):
                case "progress":
                    params: Json = {"progressToken": execution.ident, "progress": number + 1}
                    await execution.say({"method": "notifications/progress", "params": params})
                case "log":
                    params = {"level": "info", "data": str(number)}
                    await execution.say({"method": "notifications/message", "params": params})
                case _:
                    await self._ask(execution)
        await asyncio.sleep(random.expovariate(1.0))
        result = {"content": [{"type": "text", "text": execution.nonce}]}
        await execution.say({"id": execution.ident, "result": result}, last=True)

    async def _ask(self, execution: Execution) -> None:
        self._counter += 1
        ident = f"q{self._counter}"
        answered = asyncio.Event()
        self._asked[ident] = execution, answered
        params: Json = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        await execution.say({"id": ident, "method": "elicitation/create", "params": params})
        answering = self._crew.spawn(answered.wait(), "answer")
        cancelling = self._crew.spawn(execution.cancelled.wait(), "cancel")
        await asyncio.wait([answering, cancelling], return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        cancelling.cancel()


class SimChannel:
    """A replica's `Channel` to the upstream, over a way that may be cut; what can be resumed it resumes."""

    def __init__(self, upstream: SimUpstream, way: Way) -> None:
        self._upstream = upstream
        self._way = way
        self.on_place: Callable[[str], None] | None = None

    async def exchange(self, message: bytes, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Send a request and yield its messages."""
        del headers
        await self._way.step()
        if self._way.closed:
            raise UpstreamLost("the upstream cannot be reached", sent=False)
        execution = self._upstream.begin(message)
        async for one in self._read(execution, 0):
            yield one

    async def _read(self, execution: Execution, place: int) -> AsyncGenerator[bytes, None]:
        broken = self._way.enter()
        try:
            while True:
                message = await execution.after(place)
                await self._way.step()
                if broken.is_set() or self._way.closed or self._way.slips():
                    if not self._upstream.numbers or self._way.closed:
                        raise UpstreamLost("the connection was cut")
                    self._way.leave(broken)
                    broken = self._way.enter()
                    continue
                if message is None:
                    return
                place += 1
                yield Placed(message, str(place)) if self._upstream.numbers else message
        finally:
            self._way.leave(broken)

    async def send(self, message: bytes, headers: Headers) -> None:
        """Send a notification or a response."""
        del headers
        await self._way.step()
        if self._way.closed:
            raise UpstreamLost("the upstream cannot be reached", sent=False)
        slips = self._way.slips()
        if slips and self._way.random.random() < 0.5:
            raise UpstreamLost("the connection was cut", sent=False)
        self._upstream.hear(message)
        if slips:
            raise UpstreamLost("the connection was cut")

    async def close(self) -> None:
        """End the session: nothing to do."""


class NumberedChannel(SimChannel):
    """One whose exchange can be taken up by another replica."""

    async def resume(self, ident: bytes, place: str, headers: Headers) -> AsyncGenerator[bytes, None]:
        """Yield what came after an event."""
        del headers
        await self._way.step()
        execution = self._upstream.find(json.loads(ident))
        if execution is None or self._way.closed:
            raise UpstreamLost("the upstream does not have it")
        async for one in self._read(execution, int(place or 0)):
            yield one
