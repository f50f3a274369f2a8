"""A stdio server that misbehaves as the called tool is named; standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def out(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def raw(text: str) -> None:
    """Write text that may be no message."""
    sys.stdout.write(text)
    sys.stdout.flush()


def flood(ident: object) -> None:
    """Write more notifications than anybody wants to hear."""
    for _ in range(2000):
        out(
            {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": "x" * 500},
            }
        )
    done(ident)


def done(ident: object) -> None:
    """Answer as a good server does."""
    out({"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": "done"}]}})


def noise(ident: object) -> None:
    """Write lines that are no messages, then the answer."""
    raw('not json\n{"half":\n\x00\n[]\n' * 500)
    done(ident)


def twice(ident: object) -> None:
    """Answer two times."""
    done(ident)
    done(ident)


def grandchild(ident: object) -> None:
    """Start a process that outlives its parent if nobody ends it."""
    child = subprocess.Popen(["sleep", "1000"])
    out({"jsonrpc": "2.0", "id": ident, "result": {"content": [], "pid": child.pid, "own": os.getpid()}})


TOOLS: dict[str, Callable[[object], object]] = {
    "done": done,
    "die": lambda _: os._exit(3),
    "deaf": lambda _: time.sleep(1000),
    "slow": lambda _: time.sleep(1000),
    "frozen": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "mute": lambda _: os.close(1),
    "endless_line": lambda _: raw("x" * (3 * 1024 * 1024)),
    "flood": flood,
    "noise": noise,
    "twice": twice,
    "grandchild": grandchild,
}


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        ident, method = message.get("id"), message.get("method")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "break", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
            out({"jsonrpc": "2.0", "id": ident, "result": result})
        elif method == "tools/call":
            threading.Thread(target=TOOLS[message["params"]["name"]], args=(ident,), daemon=True).start()
        elif ident is not None and method is not None:
            out({"jsonrpc": "2.0", "id": ident, "result": {}})


if __name__ == "__main__":
    main()
