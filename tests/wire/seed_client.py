"""A client of dialect A, written from the text of SEP-1686 alone, on plain sockets.

It shares no line with the gateway and no library with it, so that a wrong reading of a text cannot
hide on both sides of the wire. Nothing runs in the background: each stream is read when a test asks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

Json: TypeAlias = dict[str, Any]
Ident: TypeAlias = str | int

WAIT: Final = 10.0
PAUSE: Final = 0.02
TASK: Final = "modelcontextprotocol.io/task"
RELATED: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"
INVALID_PARAMS: Final = -32602
BOTH: Final = "application/json, text/event-stream"
NOT_FOUND: Final = (INVALID_PARAMS, "Failed to retrieve task: Task not found")
TERMINAL: Final = ("completed", "failed", "cancelled", "unknown")
_LINE: Final = re.compile(rb"\r\n|\n|\r")


class Exchange:
    """One HTTP exchange: status and headers, then messages until the answer ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.seen: list[Json] = []
        self.last_id: str | None = None
        self._rest = b""
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def cut(self) -> None:
        """Drop the connection as a lost network does."""
        self._writer.transport.abort()

    async def head(self) -> None:
        """Read status and headers."""
        async with asyncio.timeout(WAIT):
            raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {
            name.strip().lower(): content.strip()
            for name, _, content in (line.partition(":") for line in lines if line)
        }

    async def body(self) -> bytes:
        """Read what is left."""
        parts: list[bytes] = []
        async with asyncio.timeout(WAIT):
            while part := await self._part():
                parts.append(part)
        return b"".join(parts)

    async def json(self) -> Any:
        """Read a whole JSON body."""
        return json.loads(await self.body())

    async def next(self, seconds: float = WAIT) -> Json | None:
        """Return the next message, `None` at the end of the answer; raise `TimeoutError`."""
        async with asyncio.timeout(seconds):
            if self.is_stream:
                message = await self._event()
            else:
                body = await self.body()
                message = json.loads(body) if body else None
        if message is not None:
            self.seen.append(message)
        return message

    async def until(self, wanted: Callable[[Json], bool], seconds: float = WAIT) -> Json:
        """Read up to a message that is wanted and return it; `AssertionError` where none comes."""
        async with asyncio.timeout(seconds):
            while (message := await self.next(seconds)) is not None:
                if wanted(message):
                    return message
        raise AssertionError(f"the answer ended ({self.status}) without it; seen: {self.seen}")

    async def notification(self, method: str, seconds: float = WAIT) -> Json:
        """Read up to a notification."""
        return await self.until(lambda m: m.get("method") == method and "id" not in m, seconds)

    async def asked(self, seconds: float = WAIT) -> Json:
        """Read up to a request of the server."""
        return await self.until(lambda m: "method" in m and "id" in m, seconds)

    async def response(self, ident: Ident, seconds: float = WAIT) -> Json:
        """Read up to the response to a request."""
        return await self.until(lambda m: "method" not in m and same(m.get("id"), ident), seconds)

    async def rest(self, seconds: float = WAIT) -> list[Json]:
        """Read to the end and return all messages of the answer."""
        while await self.next(seconds) is not None:
            pass
        return self.seen

    async def _event(self) -> Json | None:
        data: list[bytes] = []
        while (line := await self._line()) is not None:
            if not line:
                if any(data):
                    return json.loads(b"\n".join(data))
                data = []
                continue
            field, _, content = line.partition(b":")
            content = content.removeprefix(b" ")
            if field == b"data":
                data.append(content)
            elif field == b"id":
                self.last_id = content.decode()
        return None

    async def _line(self) -> bytes | None:
        while True:
            found = _LINE.search(self._rest)
            # A lone CR at the end may be half of CR LF.
            if found and not (found[0] == b"\r" and found.end() == len(self._rest)):
                line, self._rest = self._rest[: found.start()], self._rest[found.end() :]
                return line
            part = await self._part()
            if not part:
                return None
            self._rest += part

    async def _part(self) -> bytes:
        if self._ended:
            return b""
        if self.headers.get("transfer-encoding") == "chunked":
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            part = await self._reader.readexactly(size)
            await self._reader.readuntil(b"\r\n")
            self._ended = size == 0
            return part
        self._ended = True
        if "content-length" in self.headers:
            return await self._reader.readexactly(int(self.headers["content-length"]))
        return await self._reader.read() if self.status not in (202, 204) else b""


class Seed:
    """A requester over HTTP: one session, or none before `initialize`."""

    def __init__(self, url: str, authorization: str | None = None, version: str = "2025-06-18") -> None:
        self.url = url
        self.version = version
        self.session: str | None = None
        self.authorization = authorization
        self.welcome: Json = {}
        self.idents = itertools.count(1000)
        self._open: list[Exchange] = []

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.vanish()
        # Transports close in the turn after they were aborted.
        await asyncio.sleep(0)

    def vanish(self) -> None:
        """Drop every connection."""
        for exchange in self._open:
            exchange.cut()
        self._open.clear()

    def twin(self, url: str | None = None) -> Seed:
        """Return a client that holds the same session, perhaps at another replica."""
        other = Seed(url or self.url, self.authorization, self.version)
        other.session = self.session
        other._open = self._open
        return other

    def ident(self) -> int:
        """Return a request id that this client has not used."""
        return next(self.idents)

    async def initialize(self, capabilities: Json | None = None) -> Json:
        """Open a session; keep and return the result of `initialize`."""
        offered: Json = {"elicitation": {}, "sampling": {}, "roots": {}}
        params: Json = {
            "protocolVersion": self.version,
            "capabilities": offered if capabilities is None else capabilities,
            "clientInfo": {"name": "seed", "version": "1"},
        }
        async with await self.post(
            {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}
        ) as exchange:
            assert exchange.status == 200, (exchange.status, await exchange.body())
            self.session = exchange.headers.get("mcp-session-id")
            answer = await exchange.response("open")
        self.welcome = answer["result"]
        self.version = str(self.welcome["protocolVersion"])
        await self.notify("notifications/initialized")
        return self.welcome

    async def send(self, verb: str, body: bytes = b"", headers: Mapping[str, str | None] = {}) -> Exchange:
        """Send any HTTP request of this session; a header of `None` is left out."""
        place = urlsplit(self.url)
        assert place.hostname is not None
        fields: dict[str, str | None] = {"Host": place.netloc, "Accept": BOTH}
        if body:
            fields["Content-Type"] = "application/json"
        if self.session is not None:
            fields |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}
        if self.authorization is not None:
            fields["Authorization"] = self.authorization
        fields |= {**headers}
        fields.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{name}: {content}\r\n" for name, content in fields.items() if content is not None)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=2**26)
        exchange = Exchange(reader, writer)
        self._open.append(exchange)
        writer.write(f"{verb} {place.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        try:
            await exchange.head()
        except BaseException:
            writer.transport.abort()
            raise
        return exchange

    async def post(self, message: object, headers: Mapping[str, str | None] = {}) -> Exchange:
        """Send one message."""
        return await self.send("POST", json.dumps(message).encode(), headers)

    async def listen(self, last_id: str | None = None) -> Exchange:
        """Open the session's GET stream, or resume a stream after an event."""
        more = {} if last_id is None else {"Last-Event-ID": last_id}
        exchange = await self.send("GET", headers={"Accept": "text/event-stream", **more})
        assert exchange.status == 200, (exchange.status, await exchange.body())
        return exchange

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification, which must be accepted."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        await self._accepted(message if params is None else {**message, "params": params})

    async def answer(self, request: Json, result: Json) -> None:
        """Answer a request of the server, related to its task where the request is."""
        meta = request["params"].get("_meta", {})
        related = {"_meta": {RELATED: meta[RELATED]}} if RELATED in meta else {}
        await self._accepted({"jsonrpc": "2.0", "id": request["id"], "result": {**result, **related}})

    async def cancel(self, ident: Ident, reason: str = "changed my mind") -> None:
        """Cancel a request by its id."""
        await self.notify("notifications/cancelled", {"requestId": ident, "reason": reason})

    async def ask(self, method: str, params: Json | None = None, ident: Ident | None = None) -> Json:
        """Send a request and return its response, whatever it is."""
        ident = self.ident() if ident is None else ident
        message: Json = {"jsonrpc": "2.0", "id": ident, "method": method}
        async with await self.post(
            message if params is None else {**message, "params": params}
        ) as exchange:
            return await exchange.response(ident)

    async def begin(
        self,
        task_id: str,
        params: Json,
        *,
        method: str = "tools/call",
        ident: Ident | None = None,
        task: Json | None = None,
        headers: Mapping[str, str | None] = {},
    ) -> Exchange:
        """Send a request that is augmented with a task (section 3.1); `task` holds more than the id."""
        return await self.post(
            augmented(task_id, params, method, self.ident() if ident is None else ident, task), headers
        )

    async def get(self, task_id: str) -> Json:
        """Return the response to `tasks/get` (section 3.2)."""
        return await self.ask("tasks/get", about(task_id))

    async def fetch(self, task_id: str) -> Json:
        """Return the response to `tasks/result` (section 3.3)."""
        return await self.ask("tasks/result", about(task_id))

    async def delete(self, task_id: str) -> Json:
        """Return the response to `tasks/delete` (section 3.6)."""
        return await self.ask("tasks/delete", about(task_id))

    async def tasks(self) -> dict[str, Json]:
        """Read all pages of `tasks/list` (section 3.5)."""
        found: dict[str, Json] = {}
        params: Json = {}
        while True:
            page = (await self.ask("tasks/list", params))["result"]
            for task in page["tasks"]:
                assert task["taskId"] not in found, "listed twice"
                found[task["taskId"]] = task
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}

    async def reach(self, task_id: str, *statuses: str, seconds: float = WAIT) -> Json:
        """Poll until a task has one of the statuses and return its fields."""
        task: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    answer = await self.get(task_id)
                    assert "result" in answer, answer
                    task = answer["result"]
                    if task["status"] in statuses:
                        return task
                    assert task["status"] not in TERMINAL, f"wanted {statuses}: {task}"
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AssertionError(f"wanted {statuses} in {seconds} s: {task}") from None

    async def _accepted(self, message: Json) -> None:
        async with await self.post(message) as exchange:
            assert exchange.status == 202, (exchange.status, await exchange.body())


async def eventually(look: Callable[[], bool], seconds: float = WAIT) -> None:
    """Look again and again at what tells nobody when it changes; raise `TimeoutError`."""
    async with asyncio.timeout(seconds):
        while True:
            if look():
                return
            await asyncio.sleep(PAUSE)


def new_id() -> str:
    """Return a task id as the text of the SEP has them."""
    return str(uuid.uuid4())


def about(task_id: str) -> Json:
    """Return the params of a request about a task (sections 3.2 and 4.7)."""
    return {"taskId": task_id, "_meta": {RELATED: {"taskId": task_id}}}


def augmented(task_id: str, params: Json, method: str, ident: Ident, task: Json | None = None) -> Json:
    """Return a request that is to run as a task (section 3.1)."""
    meta = {**params.get("_meta", {}), TASK: {"taskId": task_id, **(task or {})}}
    return {"jsonrpc": "2.0", "id": ident, "method": method, "params": {**params, "_meta": meta}}


def related_to(message: Json) -> str | None:
    """Return the task that a message says it is about (section 4.7)."""
    place = message.get("params", message.get("result", {}))
    related = place.get("_meta", {}).get(RELATED)
    return related["taskId"] if related else None


def same(left: object, right: object) -> bool:
    """Whether two JSON-RPC ids are the same: `1` is not `"1"`, nor `true`."""
    return left == right and type(left) is type(right)


def refusal(response: Json) -> tuple[int, str]:
    """Return code and words of an error response."""
    assert "error" in response, response
    return response["error"]["code"], response["error"]["message"]


def too_early(status: str) -> tuple[int, str]:
    """Return how the result of a task that is not `completed` is refused (section 7.1)."""
    return INVALID_PARAMS, f"Cannot retrieve result: Task status is '{status}', not 'completed'"
