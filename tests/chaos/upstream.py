"""The upstreams of the chaos run that speak Streamable HTTP: `upstream.py NAME PORT LOG`.

`events` numbers its events, keeps them, and lets a stream be taken up again by `Last-Event-ID`; any other
name does neither. A call runs on when its connection is gone, as the transport has it: a disconnect is no
cancel.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tests.chaos.work import Json, Log, quick, work

HOST: Final = "127.0.0.1"
KEPT: Final = 2_000


class Call:
    """One call: its events so far, for as many readers as come."""

    def __init__(self, ident: str) -> None:
        self.ident = ident
        self.events: list[Json] = []
        self.ended = False
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None

    async def say(self, message: Json, *, last: bool = False) -> None:
        """Add an event."""
        async with self.changed:
            self.events.append(message)
            self.ended = self.ended or last
            self.changed.notify_all()

    async def end(self) -> None:
        """Let readers go without an answer."""
        async with self.changed:
            self.ended = True
            self.changed.notify_all()

    async def serve(self, request: web.Request, after: int, *, numbered: bool) -> web.StreamResponse:
        """Send the events after the first `after`, as they come."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            async with self.changed:
                while len(self.events) <= after and not self.ended:
                    await self.changed.wait()
            while after < len(self.events):
                number = f"id: {self.ident}.{after + 1}\n" if numbered else ""
                await response.write(f"{number}data: {json.dumps(self.events[after])}\n\n".encode())
                after += 1
            if self.ended:
                return response


class Upstream:
    """The server: sessions that its end takes along."""

    def __init__(self, name: str, log: Log) -> None:
        self.numbered = name == "events"
        self._log = log
        self._sessions: set[str] = set()
        self._calls: dict[str, Call] = {}
        self._requests: dict[tuple[str, str], Call] = {}
        self._questions: dict[str, asyncio.Future[Json]] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one HTTP request; who has gone gets nothing."""
        try:
            return await self._serve(request)
        except ConnectionError:
            return web.Response()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        session = request.headers.get("mcp-session-id", "")
        if request.method == "POST":
            return await self._take(request, session, json.loads(await request.read()))
        if session not in self._sessions:
            return web.json_response(_gone(None), status=404)
        if request.method == "DELETE":
            self._sessions.discard(session)
            return web.Response()
        return await self._listen(request)

    async def _take(self, request: web.Request, session: str, message: Json) -> web.StreamResponse:
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self._sessions.add(session)
            return web.json_response(quick(message), headers={"mcp-session-id": session})
        if session not in self._sessions:
            return web.json_response(_gone(message.get("id")), status=404)
        if "method" not in message or "id" not in message:
            self._note(session, message)
            return web.Response(status=202)
        answer = quick(message)
        if answer is not None:
            return web.json_response(answer)
        call = self._start(session, message)
        return await call.serve(request, 0, numbered=self.numbered)

    def _note(self, session: str, message: Json) -> None:
        if "method" not in message:
            waiting = self._questions.get(str(message["id"]))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif message["method"] == "notifications/cancelled":
            call = self._requests.get((session, json.dumps(message["params"]["requestId"])))
            if call is not None and call.task is not None:
                call.task.cancel()

    def _start(self, session: str, message: Json) -> Call:
        call = Call(uuid.uuid4().hex)
        place = (session, json.dumps(message["id"]))
        self._calls[call.ident] = self._requests[place] = call
        call.task = asyncio.get_running_loop().create_task(self._run(call, message))
        while len(self._calls) > KEPT:
            self._calls.pop(next(iter(self._calls)))
        while len(self._requests) > KEPT:
            self._requests.pop(next(iter(self._requests)))
        return call

    async def _run(self, call: Call, message: Json) -> None:
        params = message["params"]

        async def ask(question: Json) -> Json:
            ident = f"q-{call.ident}"
            waiting = self._questions[ident] = asyncio.get_running_loop().create_future()
            await call.say(
                {"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": question}
            )
            try:
                return await waiting
            finally:
                del self._questions[ident]

        try:
            note = {"level": "info", "data": f"begun {params['arguments']['nonce']}"}
            await call.say({"jsonrpc": "2.0", "method": "notifications/message", "params": note})
            result = await work(self._log, params, asyncio.sleep, ask)
            await call.say({"jsonrpc": "2.0", "id": message["id"], "result": result}, last=True)
        except asyncio.CancelledError:
            self._log.write("cancelled", params["arguments"], params["name"])
            await call.end()

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        ident, _, number = request.headers.get("last-event-id", "").rpartition(".")
        if self.numbered and ident in self._calls:
            return await self._calls[ident].serve(request, int(number), numbered=True)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.Event().wait()
        return response


def _gone(ident: Any) -> Json:
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": -32001, "message": "Session not found"}}


async def main(name: str, port: int, log: Path) -> None:
    """Serve until killed."""
    upstream = Upstream(name, Log(log, name))
    app = web.Application()
    app.router.add_route("*", "/mcp", upstream.serve)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, port, reuse_address=True).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
