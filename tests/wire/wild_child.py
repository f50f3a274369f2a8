"""A stdio server that misbehaves as it is told: `python wild_child.py`, tool `wild` with `how`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

LONG = 10 << 20


def say(message: Any) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(ident: Any, words: str) -> None:
    """Answer a call."""
    say({"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": words}]}})


def half(ident: Any) -> None:
    """Die in the middle of a line."""
    sys.stdout.write('{"jsonrpc":"2.0","id":')
    sys.stdout.flush()
    os._exit(0)


def noise(ident: Any) -> None:
    """Print what is no message."""
    sys.stdout.write("Listening on port 3000...\n\n{half json\n\x00\xff\n[1,2]\n5\n")
    answer(ident, "through the noise")


def flood(ident: Any) -> None:
    """Write more errors than a pipe holds."""
    for _ in range(200):
        sys.stderr.write("x" * 10_000 + "\n")
    answer(ident, "after the flood")


def wrong_id(ident: Any) -> None:
    """Answer somebody else first."""
    answer("nobody", "wrong")
    answer(ident, "right")


def twice(ident: Any) -> None:
    """Answer twice."""
    answer(ident, "first")
    answer(ident, "second")


WAYS: dict[str, Callable[[Any], object]] = {
    "exit": lambda _: os._exit(3),
    "abort": lambda _: os.abort(),
    "half": half,
    "noise": noise,
    "flood": flood,
    "long": lambda ident: answer(ident, "y" * LONG),
    "wrong-id": wrong_id,
    "twice": twice,
    "never": lambda _: None,
    "": lambda ident: answer(ident, "well"),
}


def main() -> None:
    """Serve until the input closes, or for ever where the command line says `--stubborn`."""
    stubborn = "--stubborn" in sys.argv
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--exit" in sys.argv:
        sys.stderr.write("no licence found\n")
        sys.exit(4)
    for line in sys.stdin:
        message = json.loads(line)
        ident = message.get("id")
        if message.get("method") == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "wild", "version": "1"},
            }
            say({"jsonrpc": "2.0", "id": ident, "result": result})
        elif message.get("method") == "tools/call":
            how = message["params"]["arguments"].get("how", "")
            threading.Thread(target=WAYS[how], args=(ident,), daemon=True).start()
        elif ident is not None and "method" in message:
            say({"jsonrpc": "2.0", "id": ident, "result": {"pid": os.getpid()}})
    while stubborn:
        time.sleep(1)


if __name__ == "__main__":
    main()
