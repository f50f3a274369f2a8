"""A stdio server that misbehaves as it is told: `python wild_child.py`, tool `wild` with `how`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

LONG = 10 << 20


def say(message: Any) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(ident: Any, words: str) -> None:
    """Answer a call."""
    say({"jsonrpc": "2.0", "id": ident, "result": {"content": [{"type": "text", "text": words}]}})


def misbehave(ident: Any, how: str) -> None:
    """Do what the call asks for, then answer where that is still possible."""
    if how == "exit":
        os._exit(3)
    elif how == "abort":
        os.abort()
    elif how == "half":
        sys.stdout.write('{"jsonrpc":"2.0","id":')
        sys.stdout.flush()
        os._exit(0)
    elif how == "noise":
        sys.stdout.write("Listening on port 3000...\n\n{half json\n\x00\xff\n[1,2]\n5\n")
        answer(ident, "through the noise")
    elif how == "flood":
        for _ in range(200):
            sys.stderr.write("x" * 10_000 + "\n")
        answer(ident, "after the flood")
    elif how == "long":
        answer(ident, "y" * LONG)
    elif how == "wrong-id":
        answer("nobody", "wrong")
        answer(ident, "right")
    elif how == "twice":
        answer(ident, "first")
        answer(ident, "second")
    elif how == "never":
        return
    else:
        answer(ident, "well")


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
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "wild", "version": "1"},
            }
            say({"jsonrpc": "2.0", "id": ident, "result": result})
        elif message.get("method") == "tools/call":
            how = message["params"]["arguments"].get("how", "")
            threading.Thread(target=misbehave, args=(ident, how), daemon=True).start()
        elif ident is not None and "method" in message:
            say({"jsonrpc": "2.0", "id": ident, "result": {"pid": os.getpid()}})
    while stubborn:
        time.sleep(1)


if __name__ == "__main__":
    main()
