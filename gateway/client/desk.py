"""Where the server's own messages arrive: notifications are shown, requests are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gateway.aio.spawn import Crew
from gateway.client.asker import Asker
from gateway.client.connection import Reply
from gateway.client.screen import Screen
from gateway.client.sep1686 import CREATED
from gateway.client.sep1686 import RELATED as RELATED_A
from gateway.client.trees import as_object
from gateway.client.v2025_11_25 import RELATED as RELATED_B
from gateway.client.v2025_11_25 import STATUS
from gateway.protocol import envelope as rpc
from gateway.protocol.envelope import Envelope
from gateway.protocol.errors import Refusal, UpstreamLost

PROGRESS_TOKEN = "call"  # noqa: S105 - the token of progress notifications, no secret


class Desk:
    """Takes notifications and requests; `created` is set when the task that is `expected` exists."""

    def __init__(self, screen: Screen, asker: Asker, crew: Crew) -> None:
        self._screen = screen
        self._asker = asker
        self._crew = crew
        self._seen: dict[bytes, asyncio.Task[None]] = {}
        self.expected: str | None = None
        self.created = asyncio.Event()
        self._news: dict[str, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        return f"<Desk expected={self.expected} created={self.created.is_set()} seen={len(self._seen)}>"

    def notice(self, envelope: Envelope) -> None:
        """Show a notification, or act on it."""
        params = as_object(rpc.value(envelope.params))
        if envelope.method == CREATED:
            task = as_object(as_object(params.get("_meta")).get(RELATED_A))
            if self.expected is not None and task.get("taskId") == self.expected:
                self.created.set()
        elif envelope.method == STATUS:
            news = self._news.get(str(params.get("taskId")))
            if news is not None and not news.done():
                news.set_result(None)
        elif envelope.method == "notifications/progress":
            self._progress(params)
        elif envelope.method == "notifications/message":
            data = params.get("data")
            text = data if isinstance(data, str) else rpc.dump(data).decode()
            origin = f" {params['logger']}" if params.get("logger") else ""
            self._screen.note(f"[{params.get('level')}{origin}] {text}")
        elif envelope.method == "notifications/cancelled":
            asking = self._seen.get(rpc.dump(params.get("requestId")))
            if asking is not None and asking.cancel():
                self._screen.note("the server has withdrawn its question")

    @contextmanager
    def news_of(self, task_id: str) -> Generator[asyncio.Future[None]]:
        """Yield what is done when the server tells of a change of the task."""
        news = self._news[task_id] = asyncio.get_running_loop().create_future()
        try:
            yield news
        finally:
            del self._news[task_id]

    def asked(self, envelope: Envelope, reply: Reply) -> None:
        """Answer a request of the server; one that comes on two streams is answered once."""
        ident = envelope.id or b"null"
        if ident not in self._seen:
            work = self._answer(envelope, ident, reply)
            self._seen[ident] = self._crew.spawn(work, f"answer {envelope.method}")

    async def _answer(self, envelope: Envelope, ident: bytes, reply: Reply) -> None:
        try:
            result = await self._asker.answer(envelope.method, as_object(rpc.value(envelope.params)))
        except Refusal as refused:
            message = rpc.refusal_response(ident, refused)
        else:
            if related := _related(envelope):
                result = {**result, "_meta": related}
            message = rpc.response(ident, rpc.dump(result))
        try:
            await reply(message)
        except (Refusal, UpstreamLost) as wrong:
            self._screen.note(f"the answer did not reach the server: {wrong}")

    def _progress(self, params: dict[str, Any]) -> None:
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if params.get("progressToken") == PROGRESS_TOKEN and isinstance(done, int | float):
            known = total if isinstance(total, int | float) else None
            self._screen.progress(done, known, message if isinstance(message, str) else None)


def _related(envelope: Envelope) -> dict[str, Any]:
    """Return the metadata that ties a request to its task, so that the answer has it too."""
    meta = rpc.meta_of(envelope.params)
    return {name: meta[name] for name in (RELATED_A, RELATED_B) if name in meta}
