"""A handshake-era child that meets `server/discover` as it is told to: refuses, ends, silent."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

MANNER = sys.argv[1]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(ident: object, text: str) -> None:
    say({"id": ident, "result": {"content": [{"type": "text", "text": text}]}})


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def other() -> bool:
    """Tell whether another message waits; lines are read without a buffer for that."""
    return bool(select.select([sys.stdin], [], [], 0.3)[0])


def initialize(ident: object) -> None:
    result = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "child", "version": "1"},
    }
    say({"id": ident, "result": result})


def call(message: dict[str, Any]) -> None:
    name = message["params"]["name"]
    if name == "pid":
        answer(message["id"], str(os.getpid()))
    elif name == "ask":
        say({"id": "q", "method": "elicitation/create", "params": {"message": "?"}})
        while (back := read()).get("id") != "q":
            pass
        answer(message["id"], f"{os.getpid()} {back['result']['action']}")
    elif name == "alone":
        answer(message["id"], "not alone" if other() else f"{os.getpid()}")
    elif name == "change":
        say({"method": "notifications/tools/list_changed"})
        answer(message["id"], "changed")
    elif name == "die":
        os._exit(3)


def main() -> None:
    while True:
        message = read()
        method = message.get("method")
        if method == "server/discover":
            if MANNER == "ends":
                sys.exit(1)
            if MANNER == "refuses":
                say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        elif method == "initialize":
            initialize(message["id"])
        elif method == "tools/call":
            call(message)
        elif "id" in message and method is not None:
            say({"id": message["id"], "result": {}})


if __name__ == "__main__":
    main()
