"""One client's way to the balancer: requests out, answers in, and every one of them recorded."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import aiohttp

from tests.chaos.history import Asked, Came, Op
from tests.wire.answers import Answer, Json

BOTH: Final = "application/json, text/event-stream"
BROKEN: Final = (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, UnicodeDecodeError)


@dataclass
class Subject:
    """A call of a client: what its records have in common."""

    client: str
    scope: str
    dialect: str
    upstream: str
    tool: str
    nonce: str
    task_id: str = ""


@dataclass
class Reply:
    """What came of a request: the response (or what HTTP said in its place), and how it came."""

    came: Came
    http: int = 0
    message: Json = field(default_factory=dict[str, Any])
    session: str | None = None
    words: str = ""

    @property
    def result(self) -> Json | None:
        """The result, if one came."""
        found = self.message.get("result")
        return cast("Json", found) if isinstance(found, dict) else None

    @property
    def code(self) -> int:
        """The code of the error that came, 0 without one."""
        return int(self._error.get("code", 0))

    @property
    def said(self) -> str:
        """The words of an error, or of a loss."""
        return str(self._error.get("message", self.words))

    @property
    def _error(self) -> Json:
        found = self.message.get("error")
        return cast("Json", found) if isinstance(found, dict) else {}


class Wire:
    """A client's connections; `recorded` grows with each answer."""

    def __init__(self, base: str, scope: str, patience: float, recorded: list[Asked]) -> None:
        self.base = base
        self.patience = patience
        self._recorded = recorded
        self._authorization = f"Bearer {scope}"
        self._idents = itertools.count(1)
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=2**22,
        )

    async def close(self) -> None:
        """Drop all connections."""
        await self._http.close()

    def ident(self) -> int:
        """Return a request id that this client has not used."""
        return next(self._idents)

    async def open(
        self, verb: str, upstream: str, headers: dict[str, str], message: Json | None, base: str = ""
    ) -> Answer:
        """Send a request and return its answer, to be read and cut by the caller; raises `BROKEN`."""
        fields = {"Accept": BOTH, "Authorization": self._authorization, **headers}
        if message is not None:
            fields["Content-Type"] = "application/json"
        response = await self._http.request(
            verb,
            f"{base or self.base}/{upstream}/mcp",
            data=None if message is None else json.dumps(message).encode(),
            headers=fields,
        )
        return Answer(response, lambda _: None)

    async def ask(
        self,
        upstream: str,
        headers: dict[str, str],
        message: Json,
        *,
        on_message: Callable[[Json], None] | None = None,
        base: str = "",
        patience: float | None = None,
    ) -> Reply:
        """Send a request and read up to its response, a notification's up to its acceptance."""
        try:
            async with asyncio.timeout(self.patience if patience is None else patience):
                async with await self.open("POST", upstream, headers, message, base) as answer:
                    return await _read(answer, "id" in message and "method" in message, on_message)
        except TimeoutError:
            return Reply("late")
        except BROKEN as fault:
            return Reply("lost", words=f"{type(fault).__name__}: {fault}")

    def record(self, subject: Subject, op: Op, sent: float, came: Came, **more: Any) -> Asked:
        """Record what was asked and came now."""
        one = Asked(
            client=subject.client,
            scope=subject.scope,
            dialect=subject.dialect,
            op=op,
            upstream=subject.upstream,
            tool=subject.tool,
            nonce=subject.nonce,
            task_id=subject.task_id,
            sent=sent,
            answered=time.time(),
            came=came,
            **more,
        )
        self._recorded.append(one)
        return one

    def failed(self, subject: Subject, op: Op, sent: float, reply: Reply, **more: Any) -> Asked:
        """Record an error or a loss."""
        return self.record(
            subject,
            op,
            sent,
            reply.came if reply.came != "result" else "error",
            http=reply.http,
            code=reply.code,
            words=reply.said[:200],
            **{"status": status_of(reply), **more},
        )


def status_of(reply: Reply) -> str:
    """Return what kind of refusal an error is, by its words; empty for a failure."""
    words = reply.said.lower()
    if reply.code == -32602 and "not found" in words:
        return "not_found"
    if "already exists" in words:
        return "taken"
    if reply.code == -32602 and "cannot retrieve result" in words:
        return "too_early"
    if reply.code == -32602 and "cannot cancel" in words:
        return "ended"
    return ""


async def events(answer: Answer, seconds: float) -> Json | None:
    """Return the next message of an answer; what is no JSON becomes an error of HTTP."""
    if answer.is_stream or answer.headers.get("content-type", "").startswith("application/json"):
        return await answer.next(seconds)
    text = await answer.text(seconds)
    return {"error": {"code": 0, "message": f"HTTP {answer.status}: {text[:80]}"}} if text else None


async def _read(answer: Answer, wanted: bool, on_message: Callable[[Json], None] | None) -> Reply:
    session = answer.headers.get("mcp-session-id")
    while (message := await events(answer, 3600)) is not None:
        if "method" not in message:
            came: Came = "error" if "error" in message else "result"
            return Reply(came, answer.status, message, session)
        if on_message is not None:
            on_message(message)
    if not wanted or answer.status >= 400:
        return Reply("ok" if answer.status < 300 else "error", answer.status, session=session)
    return Reply("lost", answer.status, words="the answer ended without a response")


def payload(result: Json | None) -> tuple[str, str, str]:
    """Return nonce, scope and word that a tool's result carries; empty where it carries none."""
    try:
        words = json.loads((result or {})["content"][0]["text"])
        return str(words["nonce"]), str(words["scope"]), str(words["word"])
    except (KeyError, IndexError, TypeError, ValueError):
        return "", "", ""
