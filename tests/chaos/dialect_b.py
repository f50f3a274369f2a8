"""Users of protocol 2025-11-25: the gateway names the task, `tasks/result` brings the questions."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.chaos.sessions import Sessions
from tests.chaos.users import PAUSE, TRIES, Call
from tests.chaos.wire import BROKEN, Reply, events
from tests.wire.answers import Json

RELATED: Final = "io.modelcontextprotocol/related-task"


class UserB(Sessions):
    """A client of dialect B."""

    dialect = "b"
    version = "2025-11-25"

    async def create(self, call: Call) -> None:
        ttl = {"ttl": int(self.shared.keep * 1000)}
        sent = time.time()
        reply = await self.message(
            "tools/call", {"name": call.tool, "arguments": call.arguments, "task": ttl}
        )
        task = (reply.result or {}).get("task")
        if task is None:
            call.over = True
            if reply.result is not None:
                self.got(call, "create", sent, reply.result, http=reply.http)
            else:
                self.wire.failed(call, "create", sent, reply)
            return
        call.task_id, call.found = str(task["taskId"]), True
        self.wire.record(
            call, "create", sent, "task", status=str(task["status"]), http=reply.http, **self._kept(task)
        )
        if call.tool == "ask_work" or self.dice.random() < 0.4:
            self.behind(self._wait(call))

    def told(self, call: Call, result: Json) -> None:
        pass

    async def cancel(self, call: Call) -> None:
        sent = time.time()
        reply = await self.message("tasks/cancel", {"taskId": call.task_id})
        if reply.result is None:
            self.wire.failed(call, "cancel", sent, reply)
        else:
            status = str(reply.result["status"])
            self.wire.record(call, "cancel", sent, "status", status=status, http=reply.http)

    async def _wait(self, call: Call) -> None:
        """Wait for the result on a stream of its own; ask again where that breaks."""
        for _ in range(TRIES):
            if not await self.ready():
                return
            sent = time.time()
            params = {"taskId": call.task_id}
            message = {
                "jsonrpc": "2.0",
                "id": self.wire.ident(),
                "method": "tasks/result",
                "params": params,
            }
            reply = await self._waited(call, message)
            if reply.result is not None:
                self.got(call, "result", sent, reply.result, http=reply.http)
                return
            ended = reply.came == "error" and reply.http == 200
            status = {"status": "failed"} if ended and reply.code != -32602 else {}
            self.wire.failed(call, "result", sent, reply, **status)
            if ended:
                return
            await asyncio.sleep(PAUSE)

    async def _waited(self, call: Call, message: Json) -> Reply:
        session = self.session
        try:
            async with asyncio.timeout(self.wire.patience):
                async with await self.wire.open("POST", self.upstream, self.headers(), message) as answer:
                    self.noticed(answer.status, session)
                    while (heard := await events(answer, 3600)) is not None:
                        if "method" not in heard:
                            came = "error" if "error" in heard else "result"
                            return Reply(came, answer.status, heard)
                        if "id" in heard:
                            await self._answer(call, heard)
                    return Reply("lost", answer.status, words="the answer ended without a response")
        except TimeoutError:
            return Reply("late")
        except BROKEN as fault:
            return Reply("lost", words=f"{type(fault).__name__}: {fault}")

    async def _answer(self, call: Call, question: Json) -> None:
        asked = str(question["params"]["message"])
        right = asked.endswith(f" {call.nonce}?")
        content = {"word": call.word if right else f"asked on the stream of {call.nonce}: {asked}"}
        meta = {"_meta": {RELATED: {"taskId": call.task_id}}}
        for _ in range(TRIES):
            sent = time.time()
            reply = await self.notify(
                {"id": question["id"], "result": {"action": "accept", "content": content, **meta}}
            )
            if reply.came == "ok":
                self.wire.record(call, "answer", sent, "ok", http=reply.http)
                return
            self.wire.failed(call, "answer", sent, reply)
            await asyncio.sleep(PAUSE)
