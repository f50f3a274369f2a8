"""Users of SEP-1686: the client names the task, so that it may ask again, and follows its stream."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.chaos.sessions import Sessions
from tests.chaos.stories import TERMINAL
from tests.chaos.users import PAUSE, TRIES, Call
from tests.chaos.wire import BROKEN, Reply, Subject, events
from tests.wire.answers import Answer, Json

TASK: Final = "modelcontextprotocol.io/task"
RELATED: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"


class UserA(Sessions):
    """A client of dialect A."""

    dialect = "a"
    _lists = 0

    async def create(self, call: Call) -> None:
        call.task_id = call.nonce
        twice = self.dice.random() < 0.05
        hurry = self.dice.random() < 0.05
        for _ in range(TRIES):
            if not await self.ready():
                call.over = True
                break
            if twice:
                self.behind(self._begin(call, hurry=False))
            if await self._begin(call, hurry=hurry) or call.over:
                break
            twice = hurry = False
            await asyncio.sleep(PAUSE)
            if (await self.get(call)).came == "status":
                break
        else:
            # Nobody told of a task: it may or may not be there.
            call.over = True
        if call.tool == "ask_work" and not call.over and not call.followed:
            # Whoever holds no stream of the call is asked on that of the session.
            self.behind(self._listen(call))

    async def forget(self, call: Call) -> None:
        sent = time.time()
        reply = await self.message("tasks/delete", about(call))
        if reply.result is None:
            self.wire.failed(call, "delete", sent, reply)
            return
        self.wire.record(call, "delete", sent, "ok", http=reply.http)
        await self.get(call)
        call.over = True

    async def cancel(self, call: Call) -> None:
        sent = time.time()
        params = {"requestId": call.request}
        reply = await self.notify({"method": "notifications/cancelled", "params": params})
        if reply.came == "ok":
            self.wire.record(call, "cancel", sent, "ok", http=reply.http)
        else:
            self.wire.failed(call, "cancel", sent, reply)

    async def list(self) -> None:
        """List all pages: what is mine and kept is there, what is another's is not."""
        mine = [call for call in self.mine if self._is_kept(call)]
        begun, seen, params = time.time(), set[str](), Json()
        while True:
            sent = time.time()
            reply = await self.message("tasks/list", params)
            if reply.result is None:
                self.wire.failed(self._listing(), "list", sent, reply)
                return
            seen |= {str(task["taskId"]) for task in reply.result["tasks"]}
            if "nextCursor" not in reply.result:
                break
            params = {"cursor": reply.result["nextCursor"]}
        for call in mine:
            if call.task_id not in seen and self._is_kept(call):
                reply = Reply("error", 200, words="not in the list")
                self.wire.failed(call, "list", begun, reply, status="not_found")
        for other in self.shared.announced:
            if other.task_id in seen and (other.scope, other.upstream) != (self.scope, self.upstream):
                got = {"got_nonce": other.nonce, "got_scope": other.scope}
                self.wire.record(self._listing(), "list", begun, "ok", **got)
        self.wire.record(self._listing(), "list", begun, "ok")

    def _is_kept(self, call: Call) -> bool:
        return call.found and not call.over and time.time() < call.made + self.shared.keep - 1

    def _listing(self) -> Subject:
        self._lists += 1
        nonce = f"{self.name}-lists-{self._lists}"
        return Subject(self.name, self.scope, self.dialect, self.upstream, "", nonce)

    async def message(self, method: str, params: Json, base: str = "") -> Reply:
        meta = {"_meta": {RELATED: {"taskId": params["taskId"]}}} if "taskId" in params else {}
        return await super().message(method, {**params, **meta}, base)

    def told(self, call: Call, result: Json) -> None:
        pass

    async def _begin(self, call: Call, *, hurry: bool) -> bool:
        """Send the creation once; tell whether the task is there."""
        ident = self.wire.ident()
        call.request = call.request or ident
        meta = {TASK: {"taskId": call.task_id, "keepAlive": int(self.shared.keep * 1000)}}
        params = {"name": call.tool, "arguments": call.arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}
        sent, session = time.time(), self.session
        answer = None
        try:
            async with asyncio.timeout(0.02 if hurry else self.wire.patience):
                answer = await self.wire.open("POST", self.upstream, self.headers(), message)
                first = await events(answer, 3600)
                # What is said of the call before it has become a task.
                while first is not None and "method" in first and first["method"] != CREATED:
                    first = await events(answer, 3600)
        except (TimeoutError, *BROKEN) as fault:
            if answer is not None:
                answer.cut()
            if isinstance(fault, TimeoutError):
                self.wire.record(call, "create", sent, "left" if hurry else "late")
            else:
                reply = Reply("lost", words=f"{type(fault).__name__}: {fault}")
                self.wire.failed(call, "create", sent, reply)
            return False
        self.noticed(answer.status, session)
        return await self._began(call, sent, answer, first, ident)

    async def _began(self, call: Call, sent: float, answer: Answer, first: Json | None, ident: int) -> bool:
        if first is None:
            answer.cut()
            words = "the answer ended without a word"
            self.wire.failed(call, "create", sent, Reply("lost", answer.status, words=words))
            return False
        if first.get("method") == CREATED:
            call.request, call.found = ident, True
            kept = {"kept": self.shared.keep, "kept_from_end": True}
            self.wire.record(call, "create", sent, "task", http=answer.status, **kept)
            if call.tool != "ask_work" and self.dice.random() < 0.5:
                answer.cut()
            else:
                call.followed = True
                self.behind(self._follow(call, answer))
            return True
        answer.cut()
        if "result" in first:
            self.got(call, "create", sent, first["result"], http=answer.status)
            call.over = True
            return True
        failed = self.wire.failed(call, "create", sent, Reply("error", answer.status, first))
        return failed.status == "taken"

    async def _follow(self, call: Call, answer: Answer) -> None:
        """Read the stream of a call to its response; take it up again elsewhere where it breaks."""
        slow = self.dice.random() < 0.1
        for _ in range(TRIES):
            sent = time.time()
            try:
                if await self._read(call, answer, sent, slow=slow):
                    return
                words = "the stream ended without a response"
            except BROKEN as fault:
                words = f"{type(fault).__name__}: {fault}"
            finally:
                answer.cut()
            self.wire.failed(
                call, "stream", sent, Reply("lost", answer.status, words=words), status="failed"
            )
            await asyncio.sleep(PAUSE)
            again = None if call.over or call.status in TERMINAL else await self._resume(answer.last_id)
            if again is None:
                return
            answer = again

    async def _listen(self, call: Call) -> None:
        answer = await self._resume(None)
        if answer is not None:
            await self._follow(call, answer)

    async def _resume(self, last_id: str | None) -> Answer | None:
        for _ in range(TRIES):
            if not await self.ready():
                return None
            more = {} if last_id is None else {"Last-Event-ID": last_id}
            try:
                answer = await self.wire.open("GET", self.upstream, {**self.headers(), **more}, None)
            except BROKEN:
                await asyncio.sleep(PAUSE)
                continue
            if answer.status == 200:
                answer.last_id = last_id
                return answer
            answer.cut()
            await asyncio.sleep(PAUSE)
        return None

    async def _read(self, call: Call, answer: Answer, sent: float, *, slow: bool) -> bool:
        while (message := await answer.next(3600)) is not None:
            if slow:
                await asyncio.sleep(0.5)
            if "method" not in message:
                if "result" in message:
                    self.got(call, "stream", sent, message["result"], http=answer.status)
                else:
                    reply = Reply("error", 200, message)
                    self.wire.failed(call, "stream", sent, reply, status="failed")
                return True
            if "id" in message:
                await self._answer(call, message)
        return False

    async def _answer(self, call: Call, question: Json) -> None:
        """Answer a question on whichever replica; the stream of the session has those of all its tasks."""
        asked = str(question["params"]["message"])
        related = str(question["params"]["_meta"][RELATED]["taskId"])
        mine = related in {one.task_id for one in self.mine}
        right = asked.endswith(f" {related}?") and mine
        content = {"word": f"word-{related}" if right else f"asked about {related}: {asked}"}
        meta = {"_meta": {RELATED: {"taskId": related}}}
        result = {"action": "accept", "content": content, **meta}
        for _ in range(TRIES):
            sent = time.time()
            reply = await self.notify({"id": question["id"], "result": result})
            if reply.came == "ok":
                self.wire.record(call, "answer", sent, "ok", http=reply.http)
                return
            self.wire.failed(call, "answer", sent, reply)
            await asyncio.sleep(PAUSE)


def about(call: Call) -> Json:
    """Return the params of a request about a task."""
    return {"taskId": call.task_id}
