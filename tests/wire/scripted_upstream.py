"""An upstream whose every word a test decides: each call waits for the test that sent it.

A call is found by the `key` among its arguments (the `key` in the URI of a resource, or the name of a
prompt), so that many tests can share one server.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web

from tests.wire.seed_client import WAIT, Json, same

NAME_FORM: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}}


class Call:
    """One request that has arrived and what the test lets the server say to it."""

    def __init__(self, upstream: Upstream, session: str, message: Json) -> None:
        self.upstream = upstream
        self.session = session
        self.message = message
        self.ident: Any = message["id"]
        self.gone = asyncio.Event()
        self.resumed: list[str] = []
        self._out: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._first: web.StreamResponse | None = None

    @property
    def meta(self) -> Json:
        """The `_meta` of the request."""
        return self.message["params"].get("_meta", {})

    def say(self, message: Json, event_id: str | None = None) -> None:
        """Send a message as an event."""
        ident = f"id: {event_id}\n" if event_id else ""
        self._out.put_nowait(("event", f"{ident}data: {json.dumps(message)}\n\n".encode()))

    def raw(self, data: bytes) -> None:
        """Send bytes on the stream as they are."""
        self._out.put_nowait(("event", data))

    def tell(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str = "elicitation/create", params: Json | None = None) -> Question:
        """Send a request of the server."""
        question = Question(self, f"q-{uuid.uuid4()}")
        default = {"message": "What is your name?", "requestedSchema": NAME_FORM}
        self.say(
            {
                "jsonrpc": "2.0",
                "id": question.ident,
                "method": method,
                "params": default if params is None else params,
            }
        )
        return question

    def finish(self, result: Json | None = None) -> None:
        """Answer and end the stream."""
        self.say({"jsonrpc": "2.0", "id": self.ident, "result": text("done") if result is None else result})
        self.end()

    def numbered_ask(self, event_id: str) -> Question:
        """Send a request of the server as an event that has an id."""
        question = Question(self, f"q-{uuid.uuid4()}")
        params = {"message": "What is your name?", "requestedSchema": NAME_FORM}
        ask = {"jsonrpc": "2.0", "id": question.ident, "method": "elicitation/create", "params": params}
        self.say(ask, event_id)
        return question

    def numbered_log(self, event_id: str, data: str) -> None:
        """Send a log message as an event that has an id."""
        params = {"level": "info", "data": data}
        self.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params}, event_id)

    async def say_on_first(self, message: Json) -> None:
        """Send a message on the call's first stream, which another has taken up."""
        assert self._first is not None
        await self._first.write(f"data: {json.dumps(message)}\n\n".encode())

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Answer with an error and end the stream."""
        error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.say({"jsonrpc": "2.0", "id": self.ident, "error": error})
        self.end()

    def end(self) -> None:
        """End the answer as HTTP asks."""
        self._out.put_nowait(("end", None))

    def cut(self) -> None:
        """Drop the connection."""
        self._out.put_nowait(("cut", None))

    def reply(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
        """Answer without a stream; `length` announces another size and then cuts."""
        self._out.put_nowait(("reply", (status, kind, body, length)))

    async def cancelled(self) -> Json:
        """Wait until the upstream is told that the call is cancelled."""
        return await self.upstream.hears(
            lambda m: (
                m.get("method") == "notifications/cancelled"
                and same(m["params"].get("requestId"), self.ident)
            ),
            self.session,
        )

    async def resumes(self) -> str:
        """Wait until the stream is taken up again, and return after which event."""
        async with asyncio.timeout(WAIT), self.upstream.changed:
            await self.upstream.changed.wait_for(lambda: bool(self.resumed))
        return self.resumed[-1]

    @property
    def is_cancelled(self) -> bool:
        """Whether the upstream has been told so by now."""
        return any(
            session == self.session
            and m.get("method") == "notifications/cancelled"
            and same(m["params"].get("requestId"), self.ident)
            for session, m in self.upstream.heard
        )

    def take_up(self) -> None:
        """Let the next stream say what was not said; one that is still open says nothing more."""
        older, self._out = self._out, asyncio.Queue()
        while not older.empty():
            self._out.put_nowait(older.get_nowait())

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Say what the test decides."""
        out = self._out
        kind, first = await out.get()
        if kind == "reply":
            status, content_type, body, length = first
            if length is None:
                return web.Response(status=status, body=body, content_type=content_type)
            response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
            response.content_length = length
            await response.prepare(request)
            await response.write(body)
            return _abort(request, response)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._first = self._first or response
        try:
            while kind == "event":
                await response.write(first)
                kind, first = await out.get()
        except ConnectionError:
            self.gone.set()
            return response
        if kind == "cut":
            return _abort(request, response)
        await response.write_eof()
        return response


class Question:
    """A request that the server has sent to the client."""

    def __init__(self, call: Call, ident: str) -> None:
        self.call = call
        self.ident = ident

    async def answered(self) -> Json:
        """Wait for the answer."""
        return await self.call.upstream.hears(
            lambda m: "method" not in m and same(m.get("id"), self.ident), self.call.session
        )

    @property
    def is_answered(self) -> bool:
        """Whether an answer has arrived by now."""
        return any("method" not in m and same(m.get("id"), self.ident) for _, m in self.call.upstream.heard)


class Upstream:
    """The server: handshake era, sessions, a GET stream, and a memory of all that it heard."""

    paths: tuple[str, ...] = ("/mcp", "/stateless")

    def __init__(self) -> None:
        self.heard: list[tuple[str, Json]] = []
        self.calls: defaultdict[str, list[Call]] = defaultdict(list)
        self.deleted: set[str] = set()
        self.url = ""
        self.changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.closing = asyncio.Event()

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        for path in self.paths:
            app.router.add_route("*", path, self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/mcp"

    async def stop(self) -> None:
        """Stop listening and end all streams."""
        self.closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def called(self, key: str, number: int = 1) -> Call:
        """Wait for the call of a key, or its `number`-th."""
        async with asyncio.timeout(WAIT), self.changed:
            await self.changed.wait_for(lambda: len(self.calls[key]) >= number)
        return self.calls[key][number - 1]

    async def hears(self, wanted: Callable[[Json], bool], session: str | None = None) -> Json:
        """Wait for a notification or an answer."""

        def found() -> list[Json]:
            return [m for s, m in self.heard if session in (None, s) and wanted(m)]

        async with asyncio.timeout(WAIT), self.changed:
            await self.changed.wait_for(lambda: bool(found()))
        return found()[0]

    def answers(self, call: Call) -> list[Json]:
        """Return the responses of the client that came in the session of a call."""
        return [m for s, m in self.heard if s == call.session and "method" not in m]

    async def ends(self, session: str) -> None:
        """Wait until a session is deleted."""
        async with asyncio.timeout(WAIT), self.changed:
            await self.changed.wait_for(lambda: session in self.deleted)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        session = request.headers.get("mcp-session-id", "")
        if request.method == "GET":
            return await self._listen(request)
        if request.method == "DELETE":
            await self._note(lambda: self.deleted.add(session))
            return web.Response()
        message: Any = json.loads(await request.read())
        if isinstance(message, list):
            return web.json_response([_quick(one) for one in cast("list[Json]", message)])
        return await self._take(request, session, message)

    async def _take(self, request: web.Request, session: str, message: Json) -> web.StreamResponse:
        if message.get("method") == "initialize":
            given = {} if request.path == "/stateless" else {"mcp-session-id": uuid.uuid4().hex}
            return web.json_response(_welcome(message), headers=given)
        if session in self.deleted:
            return web.json_response(_error(message, -32001, "Session not found"), status=404)
        if "method" not in message or "id" not in message:
            await self._note(lambda: self.heard.append((session, message)))
            return web.Response(status=202)
        key = _key(message)
        if key is None:
            return web.json_response(_quick(message))
        call = Call(self, session, message)
        await self._note(lambda: self.calls[key].append(call))
        try:
            return await call.serve(request)
        except asyncio.CancelledError:
            call.gone.set()
            raise

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("last-event-id", "")
        key = last.rpartition(".")[0]
        if key in self.calls:
            call = self.calls[key][-1]
            call.take_up()
            await self._note(lambda: call.resumed.append(last))
            return await call.serve(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self.closing.wait()
        return response

    async def _note(self, change: Callable[[], object]) -> None:
        async with self.changed:
            change()
            self.changed.notify_all()


def text(words: str) -> Json:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": words}], "isError": False}


def tool(key: str, name: str = "work", **arguments: object) -> Json:
    """Return the params of a call that waits for the test."""
    return {"name": name, "arguments": {"key": key, **arguments}}


def _welcome(message: Json) -> Json:
    result: Json = {
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _key(message: Json) -> str | None:
    params: Json = message.get("params", {})
    match message["method"]:
        case "tools/call":
            return params.get("arguments", {}).get("key")
        case "resources/read":
            return params["uri"].partition("key=")[2] or None
        case "prompts/get":
            return params["name"]
        case _:
            return None


def _quick(message: Json) -> Json:
    method = message["method"]
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "echo")]
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}
    if method == "tools/call":
        words = json.dumps(message["params"], sort_keys=True)
        return {"jsonrpc": "2.0", "id": message["id"], "result": text(words)}
    if method == "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
    return _error(message, -32601, f"Method not found: {method}")


def _error(message: Json, code: int, words: str) -> Json:
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": words}}


def _abort(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return response
