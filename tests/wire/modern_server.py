"""A server of the stateless era alone (2026-07-28): `initialize` is refused, each tool crosses one thing.

Written from the text, on the standard library. `python -m tests.wire.modern_server LOG [tasks]` serves
a pipe; `tasks` gives it the tasks extension. All that comes in is a line of LOG, and so is what a test
must know of what became of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.wire.modern_tasks import Tasks
from tests.wire.modern_words import (
    CAPABILITIES,
    FIXED,
    INFO,
    INSTRUCTIONS,
    LEVELS,
    META,
    PAGES,
    QUESTIONS,
    VERSION,
    Failed,
    Json,
    missing,
    said,
)

Say: TypeAlias = Callable[[Json], Awaitable[None]]
Note: TypeAlias = Callable[[Json], None]
_LIMIT: Final = 2**26


class Call:
    """One request on its way."""

    def __init__(self, message: Json, say: Say) -> None:
        self.message = message
        self.params: Json = message.get("params", {})
        self.meta: Json = self.params.get("_meta", {})
        self.arguments: Json = self.params.get("arguments", {})
        self._say = say

    @property
    def capabilities(self) -> Json:
        """What the client can, as it says on each request."""
        return self.meta.get(f"{META}clientCapabilities", {})

    async def tell(self, method: str, params: Json) -> None:
        """Send a notification on the request's own stream."""
        await self._say({"jsonrpc": "2.0", "method": method, "params": params})


class Modern:
    """The server. `note` hears of what comes in and of what becomes of it."""

    def __init__(self, note: Note, *, tasks: bool = False) -> None:
        self._note = note
        self._holds: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._listeners: dict[str, Call] = {}
        self._tasks = Tasks(self._publish_task) if tasks else None
        self._methods: dict[str, Callable[[Call], Awaitable[Json]]] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "subscriptions/listen": self._listen,
        }

    async def answer(self, message: Json, say: Say) -> Json:
        """Return the response to a request; what comes before it is said."""
        call = Call(message, say)
        head = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            _check(call)
            return {**head, "result": await self._result(call)}
        except Failed as failed:
            return {**head, "error": failed.error}

    async def _result(self, call: Call) -> Json:
        method = call.message["method"]
        if method in self._methods:
            return await self._methods[method](call)
        if method.startswith("tasks/") and self._tasks is not None:
            return await self._tasks.answer(call.message)
        if method == "resources/read" and call.params["uri"] != "test://static":
            raise Failed(-32602, "Resource not found", {"uri": call.params["uri"]})
        if method not in FIXED:
            raise Failed(-32601, f"Method not found: {method}")
        return FIXED[method]

    async def _discover(self, call: Call) -> Json:
        extensions: Json = {} if self._tasks is None else {"extensions": {f"{META}tasks": {}}}
        return {
            "resultType": "complete",
            "supportedVersions": [VERSION],
            "capabilities": {**CAPABILITIES, **extensions},
            "instructions": INSTRUCTIONS,
            "ttlMs": 7000,
            "cacheScope": "public",
            "_meta": {f"{META}serverInfo": INFO},
        }

    async def _list_tools(self, call: Call) -> Json:
        page = {None: 0, "page-2": 1}.get(call.params.get("cursor"))
        if page is None:
            raise Failed(-32602, "Unknown cursor")
        more = {} if page else {"nextCursor": "page-2"}
        return {
            "resultType": "complete",
            "tools": PAGES[page],
            "ttlMs": 5000,
            "cacheScope": "public",
            **more,
        }

    async def _call_tool(self, call: Call) -> Json:
        name = call.params["name"]
        if self._tasks is not None and name in ("job", "must_job"):
            created = self._tasks.begin(call.message)
            if created is not None:
                return created
        if name in QUESTIONS:
            return _asking(call, QUESTIONS[name])
        run = getattr(self, f"_run_{name}", None)
        if run is None:
            raise Failed(-32602, f"Unknown tool: {name}")
        result: Json = await run(call)
        return result

    async def _run_echo(self, call: Call) -> Json:
        return said(str(call.arguments.get("text", "")))

    async def _run_fail(self, call: Call) -> Json:
        return said("It failed.") | {"isError": True}

    async def _run_refuse(self, call: Call) -> Json:
        raise Failed(-32050, "Not today", {"detail": [1, "two", None]})

    async def _run_count(self, call: Call) -> Json:
        for step in (1, 2, 3):
            await _progress(call, step, f"step {step}")
        return said("counted")

    async def _run_chat(self, call: Call) -> Json:
        wanted = call.meta.get(f"{META}logLevel")
        for level in ("debug", "warning"):
            if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
                await call.tell("notifications/message", {"level": level, "data": f"a {level}"})
        return said("chatted")

    async def _run_touch(self, call: Call) -> Json:
        await self._publish("notifications/tools/list_changed", {}, "toolsListChanged", True)
        uri = str(call.arguments["uri"])
        await self._publish("notifications/resources/updated", {"uri": uri}, "resourceSubscriptions", uri)
        return said("touched")

    async def _run_never(self, call: Call) -> Json:
        await _progress(call, 1, "on its way")
        await asyncio.Event().wait()
        return said("never")

    async def _run_hold(self, call: Call) -> Json:
        await _progress(call, 1, "held")
        await self._holds[call.arguments["key"]].wait()
        return said(f"held {call.arguments['key']}")

    async def _run_job(self, call: Call) -> Json:
        return await self._run_hold(call)

    async def _run_must_job(self, call: Call) -> Json:
        raise missing({"extensions": {f"{META}tasks": {}}})

    async def _run_release(self, call: Call) -> Json:
        self._holds[call.arguments["key"]].set()
        if self._tasks is not None:
            await self._tasks.release(call.arguments["key"])
        return said("released")

    async def _run_pid(self, call: Call) -> Json:
        return said(str(os.getpid()))

    async def _run_die(self, call: Call) -> Json:
        os._exit(3)

    async def _listen(self, call: Call) -> Json:
        wanted: Json = call.params["notifications"]
        granted = {name: value for name, value in wanted.items() if value and name != "taskIds"}
        if self._tasks is not None and "taskIds" in wanted:
            granted["taskIds"] = [one for one in wanted["taskIds"] if self._tasks.knows(one)]
        call.params["notifications"] = granted
        tagged = {"notifications": granted, "_meta": {f"{META}subscriptionId": call.message["id"]}}
        await call.tell("notifications/subscriptions/acknowledged", tagged)
        ident = json.dumps(call.message["id"])
        self._listeners[ident] = call
        try:
            await asyncio.Event().wait()
        finally:
            del self._listeners[ident]
        return {"resultType": "complete"}

    async def _publish(self, method: str, params: Json, name: str, about: object) -> None:
        for call in list(self._listeners.values()):
            granted = call.params["notifications"].get(name)
            if granted is True or (isinstance(granted, list) and about in granted):
                tag = {f"{META}subscriptionId": call.message["id"]}
                with suppress(ConnectionError):
                    await call.tell(method, {**params, "_meta": tag})

    async def _publish_task(self, task: Json) -> None:
        self._note({"task": task["taskId"], "status": task["status"]})
        await self._publish("notifications/tasks", task, "taskIds", task["taskId"])


def _check(call: Call) -> None:
    """Refuse what is not of this era: what it needs is on every request."""
    version = call.meta.get(f"{META}protocolVersion")
    if call.message["method"] == "initialize" or (version is not None and version != VERSION):
        requested = version or call.params.get("protocolVersion")
        data = {"supported": [VERSION], "requested": requested}
        raise Failed(-32022, "Unsupported protocol version", data)
    if version is None or not isinstance(call.meta.get(f"{META}clientCapabilities"), dict):
        raise Failed(-32602, "Invalid params: _meta lacks what each request must carry")


def _asking(call: Call, questions: Json) -> Json:
    """Ask for input in the first round, tell what came in the second."""
    for question in questions.values():
        needed = question["method"].split("/")[0]
        if needed not in call.capabilities:
            raise missing({needed: {}})
    answers: Json | None = call.params.get("inputResponses")
    if answers is None:
        return {"resultType": "input_required", "inputRequests": questions, "requestState": "round 1"}
    if call.params.get("requestState") != "round 1" or set(answers) != set(questions):
        raise Failed(-32602, "This is no answer to what was asked")
    return said(json.dumps(answers, sort_keys=True))


async def _progress(call: Call, step: int, words: str) -> None:
    token = call.meta.get("progressToken")
    if token is not None:
        told = {"progressToken": token, "progress": step, "total": 3, "message": words}
        await call.tell("notifications/progress", told)


async def _serve_pipe(log: Path, *, tasks: bool) -> None:
    def note(line: Json) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    server = Modern(note, tasks=tasks)
    calls: dict[str, tuple[Json, asyncio.Task[None]]] = {}
    note({"started": os.getpid()})

    async def say(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def serve(message: Json) -> None:
        await say(await server.answer(message, say))

    reader = asyncio.StreamReader(limit=_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message: Any = json.loads(line)
        note(message)
        if message.get("method") == "notifications/cancelled":
            found = calls.get(json.dumps(message["params"]["requestId"]))
            if found is not None and found[1].cancel():
                note({"cancelled": found[0]})
        elif "id" in message and "method" in message:
            ident = json.dumps(message["id"])
            calls[ident] = message, asyncio.create_task(serve(message))
    note({"ended": os.getpid()})


if __name__ == "__main__":
    asyncio.run(_serve_pipe(Path(sys.argv[1]), tasks="tasks" in sys.argv[2:]))
