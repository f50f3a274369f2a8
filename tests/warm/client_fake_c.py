"""A small server of dialect C, written from the texts of 2026-07-28 and of the tasks extension.

Each message that comes in and goes out is held against the official schemas, each header against its body.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import Any

from aiohttp import web

from tests.schemas import Schema, mistakes
from tests.warm.client_fake import answer, error, serving, text

PREFIX = "io.modelcontextprotocol/"
EXTENSION = "io.modelcontextprotocol/tasks"
VERSION = "2026-07-28"
AT = "2025-11-25T10:30:00Z"
FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "A word?",
        "requestedSchema": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "two and two?"}}],
        "maxTokens": 9,
    },
}
Message = dict[str, Any]

REQUESTS: dict[str, tuple[Schema, str]] = {
    "server/discover": ("2026-07-28", "DiscoverRequest"),
    "tools/list": ("2026-07-28", "ListToolsRequest"),
    "tools/call": ("2026-07-28", "CallToolRequest"),
    "tasks/get": ("tasks-extension", "GetTaskRequest"),
    "tasks/update": ("tasks-extension", "UpdateTaskRequest"),
    "tasks/cancel": ("tasks-extension", "CancelTaskRequest"),
}
RESULTS: dict[str, tuple[Schema, str]] = {
    "server/discover": ("2026-07-28", "DiscoverResult"),
    "tools/list": ("2026-07-28", "ListToolsResult"),
    "tasks/get": ("tasks-extension", "GetTaskResult"),
    "tasks/update": ("tasks-extension", "UpdateTaskResult"),
    "tasks/cancel": ("tasks-extension", "CancelTaskResult"),
}


class Task:
    """One task: a tool ends it; `asks` are outstanding, `given` are the answers."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.status = "working"
        self.words: str | None = None
        self.more: Message = {}
        self.given: Message = {}
        self.work: asyncio.Task[None] | None = None

    @property
    def view(self) -> Message:
        shown = {"taskId": self.id, "status": self.status, "ttlMs": 60_000, "pollIntervalMs": 50}
        shown |= {"createdAt": AT, "lastUpdatedAt": AT}
        return shown | self.more | ({"statusMessage": self.words} if self.words else {})

    def move(self, status: str, **more: Any) -> None:
        self.status, self.more = status, more


class FakeC:
    """The server; knobs are plain attributes that a test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Message] = []
        self.headers: list[dict[str, str]] = []
        self.wrong: list[str] = []
        self.tasks: dict[str, Task] = {}
        self.go = asyncio.Event()
        self.arrived = asyncio.Condition()
        self.versions = [VERSION]
        self.extension = True
        self.required: set[str] = set()
        self.as_stream = False
        self.schemas: dict[str, Message] = {}
        self.refusals: dict[str, list[web.Response]] = {}

    def methods(self) -> list[str]:
        return [m["method"] for m in self.got]

    def sent(self, method: str) -> list[Message]:
        return [m for m in self.got if m["method"] == method]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(true)

    async def gone(self, request: web.Request) -> web.StreamResponse:
        self.wrong.append(f"{request.method}: the stateless era has none")
        return web.Response(status=405)

    async def post(self, request: web.Request) -> web.StreamResponse:
        message: Message = json.loads(await request.text())
        async with self.arrived:
            self.got.append(message)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            self.arrived.notify_all()
        method, ident, params = message["method"], message.get("id"), message.get("params", {})
        if self.refusals.get(method):
            return self.refusals[method].pop(0)
        if method not in REQUESTS:
            return web.json_response(error(ident, -32601, "Method not found"), status=404)
        self.wrong += mistakes(*REQUESTS[method], message)
        self._check_headers(request, method, params)
        if params["_meta"][f"{PREFIX}protocolVersion"] not in self.versions:
            refused = error(ident, -32022, "Unsupported protocol version")
            refused["error"]["data"] = {"supported": self.versions, "requested": VERSION}
            return web.json_response(refused, status=400)
        if method == "tools/call":
            return await self._call(request, message)
        return self._plain(method, ident, params)

    def _check_headers(self, request: web.Request, method: str, params: Message) -> None:
        name = params.get("taskId" if method.startswith("tasks/") else "name")
        wanted = {"Mcp-Method": method, "MCP-Protocol-Version": VERSION, "Mcp-Name": name}
        for header, value in wanted.items():
            found = request.headers.get(header)
            if found is not None and found.startswith("=?base64?"):
                found = base64.b64decode(found.removeprefix("=?base64?").removesuffix("?=")).decode()
            if found != value:
                self.wrong.append(f"{method}: {header} is {found}, the body has {value}")
        if "Mcp-Session-Id" in request.headers:
            self.wrong.append("there are no sessions")

    def _plain(self, method: str, ident: Any, params: Message) -> web.Response:
        if method == "server/discover":
            capabilities: Message = {"tools": {}}
            if self.extension:
                capabilities["extensions"] = {EXTENSION: {}}
            found = {"supportedVersions": self.versions, "capabilities": capabilities}
            return self._answer(method, ident, found | {"ttlMs": 0, "cacheScope": "private"})
        if method == "tools/list":
            names = [name.removeprefix("tool_") for name in dir(self) if name.startswith("tool_")]
            tools = [
                {"name": n, "inputSchema": {"type": "object", **self.schemas.get(n, {})}} for n in names
            ]
            return self._answer(method, ident, {"tools": tools, "ttlMs": 0, "cacheScope": "private"})
        return self._about(method, ident, params)

    def _about(self, method: str, ident: Any, params: Message) -> web.Response:
        if not _declares(params):
            return web.json_response(_missing(ident), status=400)
        task = self.tasks.get(params["taskId"])
        if task is None:
            return web.json_response(error(ident, -32602, "Failed to retrieve task: Task not found"))
        if method == "tasks/get":
            return self._answer(method, ident, task.view)
        if method == "tasks/cancel" and task.work is not None:
            task.work.cancel()
            task.move("cancelled")
        if method == "tasks/update":
            outstanding: Message = task.more.get("inputRequests", {})
            given = {key: g for key, g in params["inputResponses"].items() if key in outstanding}
            task.given |= given
            left = {key: ask for key, ask in outstanding.items() if key not in given}
            if outstanding:
                task.move("input_required", inputRequests=left) if left else task.move("working")
        return self._answer(method, ident, {})

    def _answer(self, method: str, ident: Any, result: Message) -> web.Response:
        result = {"resultType": "complete", **result}
        assert mistakes(*RESULTS[method], result) == []
        return web.json_response(answer(ident, result))

    async def _call(self, request: web.Request, message: Message) -> web.StreamResponse:
        ident, params = message["id"], message["params"]
        name = params["name"]
        if name in self.required and not _declares(params):
            return web.json_response(_missing(ident), status=400)
        found = await getattr(self, f"tool_{name}")(params)
        if isinstance(found, web.Response):
            return found
        if not self.as_stream:
            return web.json_response(answer(ident, found))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        meta = params["_meta"]
        note = {"level": "info", "logger": "fake", "data": "at work"}
        said = [{"jsonrpc": "2.0", "method": "notifications/message", "params": note}]
        for one in [*(said if f"{PREFIX}logLevel" in meta else []), answer(ident, found)]:
            await response.write(b"data: " + json.dumps(one).encode() + b"\n\n")
        return response

    def _task(self, params: Message, work: Callable[[Task], Any]) -> Message:
        if not _declares(params):
            return {"resultType": "complete", **text("an ordinary call")}
        task = Task()
        self.tasks[task.id] = task
        made = {"resultType": "task", **task.view}
        assert mistakes("tasks-extension", "CreateTaskResult", made) == []
        task.work = asyncio.get_running_loop().create_task(work(task))
        return made

    async def tool_slow(self, params: Message) -> Message:
        async def work(task: Task) -> None:
            task.words = "counting"
            await self.go.wait()
            task.move("completed", result=text("slow is done"))

        return self._task(params, work)

    async def tool_failing(self, params: Message) -> Message:
        async def work(task: Task) -> None:
            task.move("completed", result=text("no such row") | {"isError": True})

        return self._task(params, work)

    async def tool_broken(self, params: Message) -> Message:
        async def work(task: Task) -> None:
            task.words = "Tool execution failed"
            task.move("failed", error={"code": -32050, "message": "API rate limit exceeded", "data": [1]})

        return self._task(params, work)

    async def tool_ask(self, params: Message) -> Message:
        async def work(task: Task) -> None:
            await self._input(task, {"q-1": FORM, "q-2": FORM})
            await self._input(task, {"q-3": FORM})
            task.move("completed", result=text(json.dumps(task.given)))

        return self._task(params, work)

    async def tool_sample(self, params: Message) -> Message:
        async def work(task: Task) -> None:
            await self._input(task, {"s": SAMPLE})
            task.move("completed", result=text(json.dumps(task.given)))

        return self._task(params, work)

    async def _input(self, task: Task, asks: Message) -> None:
        task.move("input_required", inputRequests=asks)
        await self.until(lambda: not asks.keys() - task.given.keys())

    async def tool_rounds(self, params: Message) -> Message:
        """Ask twice before there is a result; the second time with another state, then with none."""
        state = params.get("requestState")
        given = params.get("inputResponses")
        if state is None and given is None:
            return _asked({"a": FORM}, "one=\u00e9\U0001f511")
        if state == "one=\u00e9\U0001f511":
            return _asked(None, "two")
        if state == "two":
            assert given is None
            return _asked({"b": FORM}, None)
        assert "requestState" not in params
        return {"resultType": "complete", **text(json.dumps(given))}

    async def tool_odd(self, params: Message) -> Message:
        return {"resultType": "elsewhere", **text("?")}

    async def tool_old(self, params: Message) -> Message:
        """Answer without a result type, as older servers do."""
        return text("old but fine")

    async def tool_region(self, params: Message) -> Message | web.Response:
        found = self.headers[-1].get("mcp-param-region")
        wanted = params["arguments"].get("where")
        return {"resultType": "complete", **text(f"header {found} for {wanted}")}


def _asked(asks: Message | None, state: str | None) -> Message:
    made: Message = {"resultType": "input_required"}
    made |= {"inputRequests": asks} if asks else {}
    made |= {"requestState": state} if state else {}
    assert mistakes("2026-07-28", "InputRequiredResult", made) == []
    return made


def _declares(params: Message) -> bool:
    capabilities = params["_meta"][f"{PREFIX}clientCapabilities"]
    return EXTENSION in capabilities.get("extensions", {})


def _missing(ident: Any) -> Message:
    refused = error(ident, -32021, "Missing required client capability")
    refused["error"]["data"] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return refused


@contextlib.asynccontextmanager
async def fake_c() -> AsyncGenerator[FakeC]:
    """Serve dialect C on a free port of this machine; the client must keep to schema and headers."""
    server = FakeC()
    async with serving(server.post, server.gone, server.gone) as url:
        server.url = url
        try:
            yield server
        finally:
            for task in server.tasks.values():
                if task.work is not None:
                    task.work.cancel()
    assert server.wrong == []
