"""An upstream of either era whose every word a test decides: `/mcp` has sessions, `/modern` has none.

`/poor` is `/mcp` without all that a server need not offer.

It says all that a server can say beside its calls, and remembers with which headers it was asked what.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from tests.wire.answers import WAIT, Json
from tests.wire.scripted_upstream import Call, Upstream, text

INFO: Final[Json] = {"name": "scripted", "version": "1", "title": "Scripted"}
INSTRUCTIONS: Final = "Call work."
VERSION: Final = "2026-07-28"
LISTENING: Final = "subscriptions/listen"
FORM: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
MIRRORED: Final[Json] = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
    },
}
CAPABILITIES: Final[Json] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}
_PAGES: Final[list[list[Json]]] = [
    [{"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "forbidden"}}],
    [
        {"name": "plain_mirrored", "inputSchema": MIRRORED},
        {"name": "echo", "inputSchema": {"type": "object"}},
    ],
]
_LISTS: Final[dict[str, Json]] = {
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "resources/list": {"resources": [{"uri": "test://static", "name": "static"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "test://{key}", "name": "any"}]},
    "completion/complete": {"completion": {"values": ["paris"], "total": 1, "hasMore": False}},
    "logging/setLevel": {},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "ping": {},
}
_CACHED: Final = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


@dataclass(frozen=True)
class Heard:
    """One POST as it came: where, in which session, with which headers (names in lower case)."""

    path: str
    session: str
    headers: Mapping[str, str]
    message: Json


class EraUpstream(Upstream):
    """The server, in both eras at once; `posts` is all that it was sent."""

    paths = ("/mcp", "/modern", "/poor")

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[Heard] = []
        self._streams: dict[str, list[asyncio.Queue[bytes | None]]] = {}

    @property
    def modern_url(self) -> str:
        """The URL of the stateless server."""
        return self.url.replace("/mcp", "/modern")

    def asked(self, method: str, session: str | None = None) -> list[Heard]:
        """Return what was asked by a method by now, in one session or in all."""
        return [
            one
            for one in self.posts
            if one.message.get("method") == method and session in (None, one.session)
        ]

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is true of what came or was opened or ended; raise `TimeoutError`."""
        async with asyncio.timeout(WAIT), self.changed:
            await self.changed.wait_for(lambda: bool(true()))

    def post_of(self, call: Call) -> Heard:
        """Return the POST that brought a call."""
        return next(one for one in self.posts if one.message is call.message)

    def opening(self, session: str) -> Heard:
        """Return the `initialize` that opened a session."""
        return next(one for one in self.asked("initialize") if one.session == session)

    def listens(self, session: str) -> int:
        """Return how many GET streams a session has open."""
        return len(self._streams.get(session, []))

    def beside(self, session: str, method: str, params: Json | None = None) -> None:
        """Send a notification on the session's GET streams."""
        message: Json = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.said_beside(session, message)

    def said_beside(self, session: str, message: Json) -> None:
        """Send a message on the session's GET streams."""
        for stream in self._streams[session]:
            stream.put_nowait(f"data: {json.dumps(message)}\n\n".encode())

    async def forget(self, session: str) -> None:
        """Know a session no more, as a server that was started again."""
        await self._note(lambda: self.deleted.add(session))
        for stream in self._streams.get(session, []):
            stream.put_nowait(None)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return await super()._serve(request)
        message: Any = json.loads(await request.read())
        session = request.headers.get("mcp-session-id", "")
        headers = {name.lower(): content for name, content in request.headers.items()}
        if request.path == "/modern":
            await self._note(lambda: self.posts.append(Heard("/modern", "", headers, message)))
            return await self._modern(request, message)
        if message.get("method") == "initialize":
            return await self._open(request.path, headers, message)
        await self._note(lambda: self.posts.append(Heard("/mcp", session, headers, message)))
        found = None if session in self.deleted else _known(message)
        return (
            web.json_response(found) if found is not None else await self._take(request, session, message)
        )

    async def _open(self, path: str, headers: Mapping[str, str], message: Json) -> web.Response:
        session = f"session-{len(self.asked('initialize'))}"
        await self._note(lambda: self.posts.append(Heard("/mcp", session, headers, message)))
        result: Json = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}} if path == "/poor" else CAPABILITIES,
            "serverInfo": INFO,
            "instructions": INSTRUCTIONS,
        }
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return web.json_response(answer, headers={"mcp-session-id": session})

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        session = request.headers.get("mcp-session-id", "")
        if session in self.deleted or request.path == "/modern":
            return web.Response(status=404 if session in self.deleted else 405)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        await self._note(lambda: self._streams.setdefault(session, []).append(stream))
        try:
            while (data := await stream.get()) is not None:
                await response.write(data)
        finally:
            self._streams[session].remove(stream)
        return response

    async def _modern(self, request: web.Request, message: Json) -> web.StreamResponse:
        method = message.get("method")
        if method == "initialize":
            error = {"code": -32600, "message": f"This server speaks {VERSION} only"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)
        if method == "server/discover":
            result: Json = {
                "supportedVersions": [VERSION],
                "capabilities": CAPABILITIES,
                "instructions": INSTRUCTIONS,
                "ttlMs": 7000,
                "cacheScope": "public",
                "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
            }
            return web.json_response(_stateless(message, result))
        found = _known(message)
        if found is None:
            call = Call(self, "", message)
            key = message["params"].get("arguments", {}).get("key", method)
            await self._note(lambda: self.calls[key].append(call))
            try:
                return await call.serve(request)
            except asyncio.CancelledError:
                await self._note(call.gone.set)
                raise
        if "error" in found:
            return web.json_response(found)
        hints = {"ttlMs": 5000, "cacheScope": "public"} if method in _CACHED else {}
        return web.json_response(_stateless(message, {**found["result"], **hints}))


def done(words: str = "done") -> Json:
    """Return the result of a tool of the stateless era."""
    return {"resultType": "complete", **text(words)}


def _stateless(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}


def _known(message: Json) -> Json | None:
    """Return the answer to what is not decided by a test."""
    method, params = message.get("method", ""), message.get("params", {})
    if method == "tools/list":
        page = {None: 0, "page-2": 1}.get(params.get("cursor"))
        if page is None:
            return _error(message, -32602, "Unknown cursor")
        more = {} if page else {"nextCursor": "page-2"}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": _PAGES[page], **more}}
    if method == "resources/read" and "key=" not in params.get("uri", ""):
        if params["uri"] != "test://static":
            return _error(message, -32002, "Resource not found")
        contents = [{"uri": params["uri"], "text": "static"}]
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"contents": contents}}
    if method in _LISTS:
        return {"jsonrpc": "2.0", "id": message["id"], "result": _LISTS[method]}
    return None


def _error(message: Json, code: int, words: str) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}}
