"""Users of protocol 2026-07-28 with the tasks extension: no sessions, all is in `tasks/get`."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.chaos.sessions import plainly
from tests.chaos.users import PAUSE, TRIES, Call, User
from tests.chaos.wire import Reply
from tests.wire.answers import Json

VERSION: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"


class UserC(User):
    """A client of dialect C."""

    dialect = "c"

    async def create(self, call: Call) -> None:
        sent = time.time()
        reply = await self.message("tools/call", {"name": call.tool, "arguments": call.arguments})
        result = reply.result
        if result is None:
            call.over = True
            self.wire.failed(call, "create", sent, reply)
        elif result.get("resultType") == "task":
            call.task_id, call.found = str(result["taskId"]), True
            kept = self._kept(result)
            self.wire.record(
                call, "create", sent, "task", status=str(result["status"]), http=reply.http, **kept
            )
        else:
            call.over = True
            self.got(call, "create", sent, result, http=reply.http)

    async def message(self, method: str, params: Json, base: str = "") -> Reply:
        headers, message = self._request(method, params, tasks=True)
        return await self.wire.ask(self.upstream, headers, message, base=base)

    async def plain(self, call: Call) -> None:
        params: Json = {"name": call.tool, "arguments": call.arguments}
        tasks = self.dice.random() < 0.5
        if call.tool == "plain_ask":
            await self._rounds(call, params, tasks=tasks)
        else:
            headers, message = self._request("tools/call", params, tasks=tasks)
            await plainly(self, call, headers, message)

    async def _rounds(self, call: Call, params: Json, *, tasks: bool) -> None:
        """Call a tool that asks: each answer comes in a request of its own, to any replica."""
        more: Json = {}
        for _ in range(TRIES):
            sent = time.time()
            headers, message = self._request("tools/call", {**params, **more}, tasks=tasks)
            reply = await self.wire.ask(self.upstream, headers, message)
            result = reply.result
            if result is None:
                self.wire.failed(call, "plain", sent, reply)
                return
            if result.get("resultType") != "input_required":
                self.got(call, "plain", sent, result, http=reply.http)
                return
            self.wire.record(call, "answer", sent, "ok", http=reply.http)
            more = {"requestState": result["requestState"]} if "requestState" in result else {}
            more["inputResponses"] = {
                key: _answer(call, request) for key, request in result.get("inputRequests", {}).items()
            }

    async def fetch(self, call: Call) -> None:
        """Ask once more: the result is in the answer."""
        await self.get(call)

    def told(self, call: Call, result: Json) -> None:
        if result["status"] == "completed":
            self.got(call, "result", time.time(), result.get("result", {}))
        if result["status"] == "input_required":
            for key, request in result.get("inputRequests", {}).items():
                if key not in call.questions:
                    call.questions.add(key)
                    self.behind(self._answer(call, key, request))

    async def _answer(self, call: Call, key: str, request: Json) -> None:
        params = {"taskId": call.task_id, "inputResponses": {key: _answer(call, request)}}
        for _ in range(TRIES):
            sent = time.time()
            reply = await self.message("tasks/update", params)
            if reply.result is not None:
                self.wire.record(call, "answer", sent, "ok", http=reply.http)
                return
            self.wire.failed(call, "answer", sent, reply)
            await asyncio.sleep(PAUSE)

    def _request(self, method: str, params: Json, *, tasks: bool) -> tuple[dict[str, str], Json]:
        capabilities: Json = {"elicitation": {"form": {}}}
        if tasks:
            capabilities["extensions"] = {f"{META}tasks": {}}
        meta: Json = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientInfo": {"name": "chaos", "version": "1"},
            f"{META}clientCapabilities": capabilities,
        }
        message = {
            "jsonrpc": "2.0",
            "id": self.wire.ident(),
            "method": method,
            "params": {**params, "_meta": meta},
        }
        headers = {
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            "Mcp-Name": str(params.get("name") or params.get("taskId")),
        }
        return headers, message


def _answer(call: Call, request: Json) -> Json:
    asked = str(request["params"]["message"])
    right = asked.endswith(f" {call.nonce}?")
    content = {"word": call.word if right else f"asked in {call.nonce}: {asked}"}
    return {"action": "accept", "content": content}
