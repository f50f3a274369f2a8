"""What the upstreams of the chaos run do with a call, whatever they are reached by, and their log.

Only the standard library, since a child that speaks stdio starts often. A line of the log is one write to a
file that is only appended to: a kill loses no line that was written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
# The answer to a question that could not be asked.
UNASKED = "unasked"
TOOLS = ("work", "retry_work", "ask_work", "fail_work", "plain_work", "plain_ask")


class Log:
    """The log of one upstream; several processes may write to one file."""

    def __init__(self, file: Path, upstream: str) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._upstream = upstream
        self.write("start", {})

    def write(self, event: str, arguments: Json, tool: str = "") -> None:
        """Write one line."""
        line = {
            "at": time.time(),
            "upstream": self._upstream,
            "pid": os.getpid(),
            "event": event,
            "nonce": arguments.get("nonce", ""),
            "scope": arguments.get("scope", ""),
            "tool": tool,
        }
        os.write(self._out, json.dumps(line).encode() + b"\n")


async def work(
    log: Log,
    params: Json,
    sleep: Callable[[float], Awaitable[None]],
    ask: Callable[[Json], Awaitable[Json]],
) -> Json:
    """Do one call and return its result; `ask` sends an elicitation and returns the client's answer."""
    tool, arguments = str(params["name"]), params.get("arguments", {})
    log.write("begin", arguments, tool)
    await sleep(arguments["ms"] / 2000)
    said: Any = None
    if tool in ("ask_work", "plain_ask"):
        log.write("asked", arguments, tool)
        answer = await ask(
            {
                "message": f"Which word belongs to {arguments['nonce']}?",
                "requestedSchema": {"type": "object", "properties": {"word": {"type": "string"}}},
            }
        )
        said = answer["result"]["content"].get("word") if "result" in answer else UNASKED
        log.write("answered", arguments, tool)
    await sleep(arguments["ms"] / 2000)
    log.write("end", arguments, tool)
    words = {"nonce": arguments["nonce"], "scope": arguments["scope"], "word": said}
    words["more"] = "x" * int(arguments.get("bytes", 0))
    return {"content": [{"type": "text", "text": json.dumps(words)}], "isError": tool == "fail_work"}


def quick(message: Json) -> Json | None:
    """Return the answer to a request that needs no work, `None` for a call."""
    method = message["method"]
    if method == "tools/call":
        return None
    result: Json = {}
    if method == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "chaos", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    elif method != "ping":
        error = {"code": -32601, "message": f"Method not found: {method}"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}
