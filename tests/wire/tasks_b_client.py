"""A client of the tasks of protocol 2025-11-25 (dialect B), written from the text alone.

It shares no line with the gateway, so that a wrong reading of the text cannot hide on both sides of
the wire. All that it sends and receives is checked against the official schema; `send` alone checks
nothing of what it sends, for messages that are wrong on purpose.

The GET stream is read in the background once it is opened, since the server may ask there while a
`tasks/result` waits. Whatever stream a message comes on, it is kept in `heard`, and where it is a
request of the server, `responder` may answer it.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

import aiohttp

from tests.wire.answers import WAIT, Answer, Json, connection
from tests.wire.checked import book

Ident: TypeAlias = str | int
# The result for a request of the server, or None to leave it unanswered.
Responder: TypeAlias = Callable[[Json], Json | None]

VERSION: Final = "2025-11-25"
RELATED: Final = "io.modelcontextprotocol/related-task"
IMMEDIATE: Final = "io.modelcontextprotocol/model-immediate-response"
BOTH: Final = "application/json, text/event-stream"
ALL: Final[Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
TERMINAL: Final = ("completed", "failed", "cancelled")
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
PAUSE: Final = 0.02


class Heard(NamedTuple):
    """A message of the server: on which stream it came (`get`, or the method asked), and itself."""

    stream: str
    message: Json


class TasksB:
    """A requester: one session; an async context manager, which initializes it.

    `capabilities` are those of `initialize`; `version` the version that is offered; `responder`
    answers requests of the server, on whichever stream they come.
    """

    def __init__(
        self,
        url: str,
        *,
        capabilities: Json | None = None,
        authorization: str | None = None,
        version: str = VERSION,
        responder: Responder | None = None,
    ) -> None:
        self.url = url
        self.capabilities = ALL if capabilities is None else capabilities
        self.authorization = authorization
        self.version = version
        self.responder = responder
        self.session: str | None = None
        self.welcome: Json = {}
        self.heard: list[Heard] = []
        self._book = book(VERSION)
        self._idents = itertools.count(7000)
        self._connection = connection()
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._heard = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        try:
            await self.initialize()
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._running:
            one.cancel()
        try:
            if isinstance(error, asyncio.CancelledError):
                await self._group.__aexit__(kind, error, trace)
            else:
                # What a test raised is not to be wrapped in a group.
                await self._group.__aexit__(None, None, None)
        finally:
            await self._connection.close()

    def twin(self, url: str) -> TasksB:
        """Return the same client with the same session, that asks at another URL (another replica)."""
        other = copy.copy(self)
        other.url = url
        return other

    def ident(self) -> int:
        """Return a request id that this client has not used."""
        return next(self._idents)

    async def initialize(self) -> Json:
        """Open a session; keep and return the result of `initialize`."""
        params: Json = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "tasks-b", "version": "1"},
        }
        self.session = None
        message = self.request("initialize", params)
        async with await self.post(message) as answer:
            assert answer.status == 200, (answer.status, await answer.text())
            self.session = answer.headers.get("mcp-session-id")
            self.welcome = (await answer.response())["result"]
        self.version = str(self.welcome["protocolVersion"])
        await self.notify("notifications/initialized")
        return self.welcome

    def request(self, method: str, params: Json | None = None, ident: Ident | None = None) -> Json:
        """Return a request."""
        head: Json = {"jsonrpc": "2.0", "id": self.ident() if ident is None else ident, "method": method}
        return head if params is None else {**head, "params": params}

    async def send(
        self,
        verb: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
        asked: Json | None = None,
    ) -> Answer:
        """Send any HTTP request of this session; a header of `None` is left out.

        What comes back is checked as the answer to `asked`.
        """
        fields: dict[str, str | None] = {"Accept": BOTH, "Authorization": self.authorization}
        if body is not None:
            fields["Content-Type"] = "application/json"
        if self.session is not None:
            fields |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}
        fields |= headers or {}
        stream = "get" if verb == "GET" else str((asked or {}).get("method"))

        def look(message: Json) -> None:
            nameless = "error" in message and message.get("id") is None and asked is None
            answered = None if "method" in message else asked
            self._book.check({**message, "id": 0} if nameless else message, answered)
            self._take(Heard(stream, message))

        response = await self._connection.request(
            verb,
            self.url,
            data=body,
            headers={name: content for name, content in fields.items() if content is not None},
            allow_redirects=False,
        )
        return Answer(response, look)

    async def post(
        self, message: Json, headers: Mapping[str, str | None] | None = None, *, wrong: bool = False
    ) -> Answer:
        """Send a message and return the answer, to be read by the caller and closed.

        `wrong` sends what the schema forbids.
        """
        if not wrong:
            self._book.check(message)
        asked = message if "method" in message and "id" in message else None
        return await self.send("POST", json.dumps(message).encode(), headers, asked)

    async def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        ident: Ident | None = None,
        seconds: float = WAIT,
        wrong: bool = False,
    ) -> Json:
        """Send a request and return its response, whatever it is; what else the stream brings is heard."""
        async with await self.post(self.request(method, params, ident), wrong=wrong) as answer:
            return await answer.response(seconds)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification, which must be accepted."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self._accepted(message if params is None else {**message, "params": params})

    async def answer(self, request: Json, result: Json) -> None:
        """Answer a request of the server, related to its task where the request is (section "Related")."""
        meta = request.get("params", {}).get("_meta", {})
        related = {"_meta": {RELATED: meta[RELATED]}} if RELATED in meta else {}
        await self._accepted({"jsonrpc": "2.0", "id": request["id"], "result": {**result, **related}})

    async def refuse(self, request: Json, code: int = -1, words: str = "refused by the user") -> None:
        """Answer a request of the server with an error."""
        error = {"code": code, "message": words}
        await self._accepted({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def listen(self, last_id: str | None = None) -> Answer:
        """Open the session's GET stream and read it in the background until it ends or is cut."""
        more = {} if last_id is None else {"Last-Event-ID": last_id}
        answer = await self.send("GET", headers={"Accept": "text/event-stream", **more})
        assert answer.status == 200, (answer.status, await answer.text())
        self.read(answer)
        return answer

    def read(self, answer: Answer) -> None:
        """Read an answer in the background until it ends or is cut; what it brings is heard."""
        self._spawn(self._read(answer))

    async def hears(self, wanted: Callable[[Heard], bool], seconds: float = WAIT) -> Heard:
        """Return the first message that is wanted, heard before or later; else raise `AssertionError`."""
        try:
            async with asyncio.timeout(seconds), self._heard:
                while True:
                    for one in self.heard:
                        if wanted(one):
                            return one
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"not heard; heard was: {self.heard}") from None

    async def asked(self, method: str, seconds: float = WAIT) -> Heard:
        """Return the first request of the server with a method, on whichever stream it comes."""
        return await self.hears(
            lambda one: one.message.get("method") == method and "id" in one.message, seconds
        )

    async def call_task(
        self,
        tool: str,
        arguments: Json | None = None,
        *,
        ttl: int | None = None,
        meta: Json | None = None,
        ident: Ident | None = None,
    ) -> Json:
        """Call a tool as a task and return its `CreateTaskResult`; `AssertionError` for another answer."""
        params: Json = {
            "name": tool,
            "arguments": arguments or {},
            "task": {} if ttl is None else {"ttl": ttl},
        }
        if meta is not None:
            params["_meta"] = meta
        response = await self.ask("tools/call", params, ident=ident)
        assert "task" in response.get("result", {}), response
        check_task(response["result"]["task"])
        assert response["result"]["task"]["status"] == "working", response
        return response["result"]

    async def start(self, tool: str, arguments: Json | None = None, *, ttl: int | None = None) -> str:
        """Call a tool as a task and return the task's id."""
        return (await self.call_task(tool, arguments, ttl=ttl))["task"]["taskId"]

    async def get(self, task_id: str) -> Json:
        """Return the response to `tasks/get`."""
        response = await self.ask("tasks/get", {"taskId": task_id})
        _check_found(response, task_id)
        return response

    async def result(self, task_id: str, seconds: float = WAIT) -> Json:
        """Return the response to `tasks/result`, which waits for the end of the task.

        A result must be one of a tool call and be related to the task.
        """
        response = await self.ask("tasks/result", {"taskId": task_id}, seconds=seconds)
        if "result" in response:
            faults = self._book.result_faults("CallToolResult", response["result"])
            assert not faults, (faults, response)
            assert response["result"]["_meta"][RELATED] == {"taskId": task_id}, response
        return response

    async def list(self) -> dict[str, Json]:
        """Read all pages of `tasks/list`."""
        found: dict[str, Json] = {}
        params: Json = {}
        while True:
            page = (await self.ask("tasks/list", params))["result"]
            for task in page["tasks"]:
                assert task["taskId"] not in found, "listed twice"
                check_task(task)
                found[task["taskId"]] = task
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}

    async def cancel(self, task_id: str) -> Json:
        """Return the response to `tasks/cancel`; a result must show the task cancelled."""
        response = await self.ask("tasks/cancel", {"taskId": task_id})
        _check_found(response, task_id)
        assert response.get("result", {}).get("status", "cancelled") == "cancelled", response
        return response

    async def reach(self, task_id: str, *statuses: str, seconds: float = WAIT) -> Json:
        """Poll until a task has one of the statuses and return it."""
        task: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    response = await self.get(task_id)
                    assert "result" in response, response
                    task = response["result"]
                    if task["status"] in statuses:
                        return task
                    assert task["status"] not in TERMINAL, f"wanted {statuses}: {task}"
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AssertionError(f"wanted {statuses} in {seconds} s: {task}") from None

    def _take(self, one: Heard) -> None:
        """Keep a message, and have it answered where it is a request."""
        self.heard.append(one)
        self._spawn(self._react(one.message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _react(self, message: Json) -> None:
        async with self._heard:
            self._heard.notify_all()
        if self.responder is not None and "method" in message and "id" in message:
            result = self.responder(message)
            if result is not None:
                await self.answer(message, result)

    async def _read(self, answer: Answer) -> None:
        # A stream that the test cuts ends so.
        with suppress(aiohttp.ClientConnectionError):
            async with answer:
                while await answer.next(seconds=3600) is not None:
                    pass

    async def _accepted(self, message: Json) -> None:
        async with await self.post(message) as answer:
            assert answer.status == 202, (answer.status, await answer.text())


def check_task(task: Json) -> None:
    """Check what the text says of a task beyond the schema."""
    for name in ("createdAt", "lastUpdatedAt"):
        assert datetime.fromisoformat(task[name]).tzinfo is not None, task
    assert task["ttl"] is None or task["ttl"] > 0, task


def _check_found(response: Json, task_id: str) -> None:
    if "result" in response:
        assert response["result"]["taskId"] == task_id, response
        # "SHOULD NOT include related-task metadata" in the results of get and cancel.
        assert RELATED not in response["result"].get("_meta", {}), response
        check_task(response["result"])


def related_to(message: Json) -> Any:
    """Return the id of the task that a message says it is about."""
    place = message.get("params", message.get("result", {}))
    return place.get("_meta", {}).get(RELATED, {}).get("taskId")


def always(result: Json) -> Responder:
    """Return what answers every request of the server alike."""

    def answer(request: Json) -> Json:
        del request
        return result

    return answer


def accept(**content: Any) -> Json:
    """Return the result of an elicitation that was accepted."""
    return {"action": "accept", "content": content}
