"""Where the server's own messages arrive: notifications are shown, requests are answered."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.aio.spawn import Crew
from gateway.client.asker import Asker
from gateway.client.connection import Reply
from gateway.client.screen import Screen
from gateway.client.sep1686 import CREATED, related, related_id
from gateway.client.trees import as_object
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

    def __repr__(self) -> str:
        return f"<Desk expected={self.expected} created={self.created.is_set()} seen={len(self._seen)}>"

    def notice(self, envelope: Envelope) -> None:
        """Show a notification, or act on it."""
        params = as_object(rpc.value(envelope.params))
        if envelope.method == CREATED:
            if self.expected is not None and related_id(envelope) == self.expected:
                self.created.set()
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
            if (task_id := related_id(envelope)) is not None:
                result = {**result, "_meta": related(task_id)}
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
