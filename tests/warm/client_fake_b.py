"""A small server of dialect B, written from the text of 2025-11-25 tasks: what it says and nothing more.

Each message that comes in and goes out is held against the official schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import Any

from aiohttp import web

from tests.schemas import mistakes
from tests.warm.client_fake import answer, error, serving, text

RELATED = "io.modelcontextprotocol/related-task"
AT = "2025-11-25T10:30:00Z"
Message = dict[str, Any]
Queue = asyncio.Queue[Message | None]

REQUESTS = {
    "initialize": "InitializeRequest",
    "notifications/initialized": "InitializedNotification",
    "notifications/cancelled": "CancelledNotification",
    "tools/list": "ListToolsRequest",
    "tools/call": "CallToolRequest",
    "tasks/get": "GetTaskRequest",
    "tasks/result": "GetTaskPayloadRequest",
    "tasks/list": "ListTasksRequest",
    "tasks/cancel": "CancelTaskRequest",
}
RESULTS = {
    "initialize": "InitializeResult",
    "tools/list": "ListToolsResult",
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
}


class Task:
    """One task; `waiting` are the streams of `tasks/result`."""

    def __init__(self, ident: str, params: Message) -> None:
        self.id = ident
        self.params = params
        self.status = "working"
        self.words: str | None = "at work"
        self.ttl = params["task"].get("ttl", 60_000)
        self.answer: Message | None = None
        self.ended = asyncio.Event()
        self.results: Queue = asyncio.Queue()
        self.work: asyncio.Task[None] | None = None

    @property
    def view(self) -> Message:
        shown = {"taskId": self.id, "status": self.status, "ttl": self.ttl, "pollInterval": 50}
        shown |= {"createdAt": AT, "lastUpdatedAt": AT}
        return shown | ({"statusMessage": self.words} if self.words else {})

    def end(self, status: str, answered: Message | None, words: str | None = None) -> None:
        self.status, self.answer, self.words = status, answered, words
        self.ended.set()


class FakeB:
    """The server; knobs are plain attributes that a test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Message] = []
        self.wrong: list[str] = []
        self.tasks: dict[str, Task] = {}
        self.sessions: set[str] = set()
        self.go = asyncio.Event()
        self.arrived = asyncio.Condition()
        self.listeners: list[Queue] = []
        self.answers: dict[str, asyncio.Future[Message]] = {}
        self.capabilities: Message = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        self.support: dict[str, str] = {}
        self.on_get_stream = False
        self.page_size = 2

    def methods(self) -> list[str]:
        return [m.get("method", "(answer)") for m in self.got]

    def sent(self, method: str) -> list[Message]:
        return [m for m in self.got if m.get("method") == method]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(true)

    async def post(self, request: web.Request) -> web.StreamResponse:
        message: Message = json.loads(await request.text())
        async with self.arrived:
            self.got.append(message)
            self.arrived.notify_all()
        method: str = message.get("method", "")
        if method == "server/discover":
            return web.json_response(error(message["id"], -32601, "Method not found"), status=400)
        if method in REQUESTS:
            self.wrong += mistakes("2025-11-25", REQUESTS[method], message)
        if method == "initialize":
            return self._initialize(message)
        if request.headers.get("Mcp-Session-Id") not in self.sessions:
            return web.json_response(error(message.get("id"), -32001, "Session not found"), status=404)
        if request.headers.get("MCP-Protocol-Version") != "2025-11-25":
            self.wrong.append(f"{method}: no protocol version")
        if "id" not in message or not method:
            self._told(message)
            return web.Response(status=202)
        return await self._request(request, message)

    async def get(self, request: web.Request) -> web.StreamResponse:
        queue: Queue = asyncio.Queue()
        async with self.arrived:
            self.listeners.append(queue)
            self.arrived.notify_all()
        return await self._stream(request, queue)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        self.sessions.discard(request.headers["Mcp-Session-Id"])
        return web.Response(status=204)

    def _initialize(self, message: Message) -> web.Response:
        session = uuid.uuid4().hex
        self.sessions.add(session)
        capabilities: Message = {"tools": {}}
        if self.capabilities:
            capabilities["tasks"] = self.capabilities
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "b", "version": "1"},
        }
        return web.json_response(answer(message["id"], result), headers={"Mcp-Session-Id": session})

    def _told(self, message: Message) -> None:
        if "method" not in message:
            self.answers.pop(message["id"]).set_result(message)
        elif message["method"] == "notifications/cancelled":
            self.wrong.append("tasks are not cancelled by notification")

    async def _request(self, request: web.Request, message: Message) -> web.StreamResponse:
        ident, method, params = message["id"], message["method"], message.get("params", {})
        if method == "tools/call":
            return await self._call(message)
        if method == "tools/list":
            return self._answer(method, ident, self._tools(params.get("cursor")))
        if method == "tasks/list":
            return self._answer(method, ident, self._page(params.get("cursor")))
        return await self._about(request, method, ident, params)

    async def _about(
        self, request: web.Request, method: str, ident: Any, params: Message
    ) -> web.StreamResponse:
        task = self.tasks.get(params["taskId"])
        if task is None:
            return web.json_response(error(ident, -32602, "Failed to retrieve task: Task not found"))
        if RELATED in params.get("_meta", {}):
            self.wrong.append(f"{method} has related-task metadata")
        if method == "tasks/result":
            return await self._result(request, ident, task)
        if method == "tasks/cancel":
            if task.ended.is_set():
                return web.json_response(error(ident, -32602, "Cannot cancel task: already terminal"))
            task.end("cancelled", error(ident, -32000, "cancelled"), "The task was cancelled by request.")
        return self._answer(method, ident, task.view)

    def _answer(self, method: str, ident: Any, result: Message) -> web.Response:
        assert mistakes("2025-11-25", RESULTS[method], result) == []
        return web.json_response(answer(ident, result))

    def _tools(self, cursor: str | None) -> Message:
        if cursor is None:
            return {"tools": [_tool("first", None)], "nextCursor": "more"}
        names = [name.removeprefix("tool_") for name in dir(self) if name.startswith("tool_")]
        return {"tools": [_tool(name, self.support.get(name, "optional")) for name in names]}

    def _page(self, cursor: str | None) -> Message:
        start = int(cursor or 0)
        views = [task.view for task in self.tasks.values()]
        page: Message = {"tasks": views[start : start + self.page_size]}
        more = len(views) > start + self.page_size
        return page | ({"nextCursor": str(start + self.page_size)} if more else {})

    async def _call(self, message: Message) -> web.Response:
        ident, params = message["id"], message["params"]
        name = params["name"]
        support = self.support.get(name, "optional")
        if ("task" in params) != (support != "forbidden") and support != "optional":
            return web.json_response(error(ident, -32601, "Method not found"))
        if "task" not in params or not self.capabilities:
            return web.json_response(answer(ident, text(f"{name} was an ordinary call")))
        task = Task(uuid.uuid4().hex, params)
        self.tasks[task.id] = task
        task.work = asyncio.get_running_loop().create_task(getattr(self, f"tool_{name}")(task))
        result = {"task": task.view}
        assert mistakes("2025-11-25", "CreateTaskResult", result) == []
        return web.json_response(answer(ident, result))

    async def _result(self, request: web.Request, ident: Any, task: Task) -> web.StreamResponse:
        async def end() -> None:
            await task.ended.wait()
            assert task.answer is not None
            final = task.answer | {"id": ident}
            if "result" in final:
                final["result"] = final["result"] | {"_meta": {RELATED: {"taskId": task.id}}}
            task.results.put_nowait(final)
            task.results.put_nowait(None)

        ending = asyncio.get_running_loop().create_task(end())
        try:
            return await self._stream(request, task.results)
        finally:
            ending.cancel()

    async def _stream(self, request: web.Request, queue: Queue) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while (message := await queue.get()) is not None:
            await response.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        return response

    def tell(self, task: Task) -> None:
        """Send the optional status notification on the GET stream."""
        for listener in self.listeners:
            told = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task.view}
            assert mistakes("2025-11-25", "TaskStatusNotification", told) == []
            listener.put_nowait(told)

    async def tool_slow(self, task: Task) -> None:
        token = task.params.get("_meta", {}).get("progressToken")
        if token is not None:
            await self.until(lambda: bool(self.listeners))
            half = {"progressToken": token, "progress": 1, "total": 2, "message": "half of it"}
            half["_meta"] = {RELATED: {"taskId": task.id}}
            self.listeners[-1].put_nowait(
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": half}
            )
        await self.go.wait()
        task.end("completed", {"jsonrpc": "2.0", "result": text("slow is done")})

    async def tool_failing(self, task: Task) -> None:
        failed = text("no such row") | {"isError": True}
        task.end("failed", {"jsonrpc": "2.0", "result": failed}, "no such row")

    async def tool_broken(self, task: Task) -> None:
        task.end("failed", error(None, -32603, "API rate limit exceeded"), "Tool execution failed")

    async def tool_ask(self, task: Task) -> None:
        schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        asked = {"message": "A word?", "requestedSchema": schema, "_meta": {RELATED: {"taskId": task.id}}}
        ident = uuid.uuid4().hex
        waiting = self.answers[ident] = asyncio.get_running_loop().create_future()
        task.status = "input_required"
        queue = task.results
        if self.on_get_stream:
            await self.until(lambda: bool(self.listeners))
            queue = self.listeners[-1]
        queue.put_nowait({"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": asked})
        found = await waiting
        task.status = "working"
        task.end("completed", {"jsonrpc": "2.0", "result": text(json.dumps(found))})


def _tool(name: str, support: str | None) -> Message:
    tool: Message = {"name": name, "inputSchema": {"type": "object"}}
    return tool | ({"execution": {"taskSupport": support}} if support else {})


@contextlib.asynccontextmanager
async def fake_b() -> AsyncGenerator[FakeB]:
    """Serve dialect B on a free port of this machine; the client must keep to the schema."""
    server = FakeB()
    async with serving(server.post, server.get, server.delete) as url:
        server.url = url
        try:
            yield server
        finally:
            for task in server.tasks.values():
                if task.work is not None:
                    task.work.cancel()
    assert server.wrong == []
