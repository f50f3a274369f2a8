"""A small server with tasks, written from the text of SEP-1686: what it says and nothing more.

Its tools do what a test tells them: `go` lets waiting calls end, `cut` breaks their streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from aiohttp import web

RELATED = "modelcontextprotocol.io/related-task"
Message = dict[str, Any]


class Call:
    """One `tools/call` on its way."""

    def __init__(self, message: Message) -> None:
        self.id = message["id"]
        self.params: Message = message["params"]
        meta: Message = self.params.get("_meta", {})
        self.task_id: str | None = meta.get("modelcontextprotocol.io/task", {}).get("taskId")
        self.keep_alive = meta.get("modelcontextprotocol.io/task", {}).get("keepAlive", 60000)
        self.token = meta.get("progressToken")
        self.status = "submitted"
        self.result: Message | None = None
        self.error: str | None = None
        self.stream: asyncio.Queue[Message | None] = asyncio.Queue()
        self.work: asyncio.Task[None] | None = None

    @property
    def view(self) -> Message:
        shown = {
            "taskId": self.task_id,
            "status": self.status,
            "keepAlive": self.keep_alive,
            "pollFrequency": 50,
        }
        return shown | ({"error": self.error} if self.error else {})


class Fake:
    """The server; knobs are plain attributes that a test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Message] = []
        self.headers: list[dict[str, str]] = []
        self.calls: dict[str, Call] = {}
        self.sessions: set[str] = set()
        self.ended: set[str] = set()
        self.go = asyncio.Event()
        self.cut = asyncio.Event()
        self.tasks_known = True
        self.announces = True
        self.refusals: list[web.Response] = []
        self.refuse_method = ""
        self.page_size = 2
        self.listeners: list[asyncio.Queue[Message | None]] = []
        self.answers: dict[str, asyncio.Future[Message]] = {}
        self.arrived = asyncio.Condition()

    def methods(self) -> list[str]:
        return [m.get("method", "(answer)") for m in self.got]

    def sent(self, method: str) -> list[Message]:
        return [m for m in self.got if m.get("method") == method]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(true)

    async def post(self, request: web.Request) -> web.StreamResponse:
        message: Message = json.loads(await request.text())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        async with self.arrived:
            self.got.append(message)
            self.arrived.notify_all()
        method: str = message.get("method", "")
        if self.refusals and self.refuse_method in ("", method):
            return self.refusals.pop(0)
        if (
            method != "initialize"
            and request.headers.get("Mcp-Session-Id") not in self.sessions - self.ended
        ):
            return web.json_response(error(message.get("id"), -32001, "Session not found"), status=404)
        if "id" not in message:
            self._notified(message)
            return web.Response(status=202)
        if not method:
            self.answers.pop(message["id"]).set_result(message)
            return web.Response(status=202)
        if method == "tools/call":
            return await self._stream(request, self._begin(message))
        return self._plain(message)

    async def get(self, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[Message | None] = asyncio.Queue()
        async with self.arrived:
            self.listeners.append(queue)
            self.arrived.notify_all()
        return await self._write(request, queue)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        self.ended.add(request.headers["Mcp-Session-Id"])
        return web.Response(status=204)

    def _plain(self, message: Message) -> web.Response:
        ident, params = message["id"], message.get("params", {})
        if message["method"] == "initialize":
            session = uuid.uuid4().hex
            self.sessions.add(session)
            result: Message = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {
                    "logging": {},
                    "tools": {},
                    "tasks": {"tools": {"call": self.tasks_known}},
                },
            }
            result["serverInfo"] = {"name": "fake", "version": "1"}
            return web.json_response(answer(ident, result), headers={"Mcp-Session-Id": session})
        if message["method"] == "logging/setLevel":
            return web.json_response(answer(ident, {}))
        if message["method"] == "tasks/list":
            return web.json_response(self._page(ident, params.get("cursor")))
        call = self.calls.get(params.get("taskId"))
        if call is None:
            return web.json_response(error(ident, -32602, "Failed to retrieve task: Task not found"))
        return web.json_response(self._about(message["method"], ident, call))

    def _about(self, method: str, ident: Any, call: Call) -> Message:
        meta = {"_meta": {RELATED: {"taskId": call.task_id}}}
        if method == "tasks/get":
            return answer(ident, call.view | meta)
        if method == "tasks/delete":
            del self.calls[str(call.task_id)]
            return answer(ident, meta)
        if call.result is None or call.status != "completed":
            words = f"Cannot retrieve result: Task status is '{call.status}', not 'completed'"
            return error(ident, -32602, words)
        return answer(ident, call.result | meta)

    def _page(self, ident: Any, cursor: str | None) -> Message:
        start = int(cursor.removeprefix("after-")) if cursor else 0
        views = [call.view for call in self.calls.values()]
        page: Message = {"tasks": views[start : start + self.page_size]}
        if len(views) > start + self.page_size:
            page["nextCursor"] = f"after-{start + self.page_size}"
        return answer(ident, page)

    def _notified(self, message: Message) -> None:
        if message["method"] == "notifications/cancelled":
            for call in self.calls.values():
                if call.id == message["params"]["requestId"] and call.work is not None:
                    call.status = "cancelled"
                    call.work.cancel()

    def _begin(self, message: Message) -> Call:
        call = Call(message)
        if not self.tasks_known:
            call.task_id = None
        if call.task_id is not None:
            self.calls[call.task_id] = call
            if self.announces:
                self.say(call, "notifications/tasks/created", {})
        tool: Callable[[Call], Awaitable[None]] = getattr(self, f"tool_{call.params['name']}")
        call.work = asyncio.get_running_loop().create_task(self._work(call, tool))
        return call

    async def _work(self, call: Call, tool: Callable[[Call], Awaitable[None]]) -> None:
        call.status = "working"
        with contextlib.suppress(asyncio.CancelledError):
            await tool(call)
        await call.stream.put(None)

    def say(self, call: Call, method: str, params: Message) -> None:
        call.stream.put_nowait({"jsonrpc": "2.0", "method": method, "params": params | related(call)})

    def finish(self, call: Call, result: Message) -> None:
        call.status, call.result = "completed", result
        call.stream.put_nowait(answer(call.id, result | related(call)))

    async def tool_slow(self, call: Call) -> None:
        if call.token is not None:
            half = {"progressToken": call.token, "progress": 1, "total": 2, "message": "half of it"}
            self.say(call, "notifications/progress", half)
        self.say(call, "notifications/message", {"level": "info", "logger": "fake", "data": "at work"})
        await self.go.wait()
        self.finish(call, text("slow is done"))

    async def tool_quiet(self, call: Call) -> None:
        """Complete without the original response ever coming."""
        await self.go.wait()
        call.status, call.result = "completed", text("quiet is done")
        await asyncio.Event().wait()

    async def tool_failing(self, call: Call) -> None:
        self.finish(call, {**text("no such row"), "isError": True})

    async def tool_broken(self, call: Call) -> None:
        call.status, call.error = "failed", "Tool execution failed: API rate limit exceeded"
        failed = error(call.id, -32050, "API rate limit exceeded")
        failed["error"]["data"] = [1, 2]
        call.stream.put_nowait(failed)

    async def tool_lost(self, call: Call) -> None:
        """Fail without the original response ever coming."""
        call.status, call.error = "failed", "Tool execution failed: API rate limit exceeded"
        await asyncio.Event().wait()

    async def tool_evil(self, call: Call) -> None:
        self.finish(call, text("\x1b]0;owned\x07"))

    async def tool_exact(self, call: Call) -> None:
        self.finish(call, {"content": [], "structuredContent": call.params["arguments"]})

    async def tool_ask(self, call: Call) -> None:
        call.status = "input_required"
        schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        found = await self._ask(
            call, "elicitation/create", {"message": "A word?", "requestedSchema": schema}
        )
        call.status = "working"
        self.finish(call, text(json.dumps(found)))

    async def tool_sample(self, call: Call) -> None:
        said = [{"role": "user", "content": {"type": "text", "text": "two and two?"}}]
        found = await self._ask(call, "sampling/createMessage", {"messages": said, "maxTokens": 9})
        self.finish(call, text(json.dumps(found)))

    async def _ask(self, call: Call, method: str, params: Message) -> Message:
        ident = f"q-{uuid.uuid4().hex}"
        waiting = asyncio.get_running_loop().create_future()
        self.answers[ident] = waiting
        asked = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params | related(call)}
        stream = call.stream
        if self.cut.is_set():
            await self.until(lambda: bool(self.listeners))
            stream = self.listeners[-1]
        stream.put_nowait(asked)
        return await waiting

    async def _stream(self, request: web.Request, call: Call) -> web.StreamResponse:
        return await self._write(request, call.stream)

    async def _write(
        self, request: web.Request, queue: asyncio.Queue[Message | None]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        cut = asyncio.get_running_loop().create_task(self.cut.wait())
        while True:
            taken = asyncio.get_running_loop().create_task(queue.get())
            await asyncio.wait({taken, cut}, return_when=asyncio.FIRST_COMPLETED)
            message = taken.result() if taken.done() else None
            if message is None:
                break
            await response.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        taken.cancel()
        cut.cancel()
        if self.cut.is_set() and request.transport is not None:
            request.transport.abort()
        return response


def answer(ident: Any, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": ident, "result": result}


def error(ident: Any, code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}


def text(content: str) -> Message:
    return {"content": [{"type": "text", "text": content}], "isError": False}


def related(call: Call) -> Message:
    return {"_meta": {RELATED: {"taskId": call.task_id}}} if call.task_id is not None else {}


@contextlib.asynccontextmanager
async def fake() -> AsyncGenerator[Fake]:
    """Serve dialect A on a free port of this machine."""
    server = Fake()
    async with serving(server.post, server.get, server.delete) as url:
        server.url = url
        try:
            yield server
        finally:
            for call in server.calls.values():
                if call.work is not None:
                    call.work.cancel()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(post: Handler, get: Handler, delete: Handler) -> AsyncGenerator[str]:
    """Serve an endpoint on a free port of this machine and yield its URL."""
    app = web.Application()
    app.router.add_post("/mcp", post)
    app.router.add_get("/mcp", get)
    app.router.add_delete("/mcp", delete)
    runner = web.AppRunner(app, shutdown_timeout=0.02)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()
