"""The upstream of the chaos run that speaks stdio: `child.py LOG`; it ends with its input."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.chaos.work import Json, Log, quick, work


class Child:
    """One child: its running calls, and its questions that wait for an answer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._questions: dict[str, asyncio.Future[Json]] = {}

    def take(self, message: Json) -> None:
        """Take one message."""
        if "method" not in message:
            waiting = self._questions.get(str(message["id"]))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif message["method"] == "notifications/cancelled":
            self._cancel(json.dumps(message["params"]["requestId"]))
        elif "id" in message:
            answer = quick(message)
            if answer is not None:
                _say(answer)
            else:
                ident = json.dumps(message["id"])
                self._calls[ident] = asyncio.get_running_loop().create_task(self._run(ident, message))

    async def _run(self, ident: str, message: Json) -> None:
        try:
            result = await work(self._log, message["params"], asyncio.sleep, self._ask)
            _say({"jsonrpc": "2.0", "id": message["id"], "result": result})
        except asyncio.CancelledError:
            self._log.write("cancelled", message["params"]["arguments"], message["params"]["name"])
        finally:
            self._calls.pop(ident, None)

    async def _ask(self, params: Json) -> Json:
        ident = f"q{len(self._questions)}"
        self._questions[ident] = asyncio.get_running_loop().create_future()
        _say({"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": params})
        return await self._questions[ident]

    def _cancel(self, ident: str) -> None:
        running = self._calls.get(ident)
        if running is not None:
            running.cancel()


def _say(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def serve(log: Path) -> None:
    """Serve stdin until it ends."""
    reader = asyncio.StreamReader(limit=2**22)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    child = Child(Log(log, "child"))
    while line := await reader.readline():
        message: Any = json.loads(line)
        child.take(message)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
