"""A child process that speaks just enough MCP, and misbehaves as its first argument says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(mode: str, ident: object) -> None:
    if mode == "exit-in-call":
        sys.stderr.write("out of luck\n")
        sys.exit(3)
    elif mode == "killed-in-call":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "flood":
        for _ in range(400):
            sys.stderr.write("x" * 10_000 + "\n")
    elif mode == "noise":
        sys.stdout.write("Listening on stdio...\n\n[1,2]\n{}\n")
    elif mode == "long-line":
        say({"id": ident, "result": {"text": "y" * int(sys.argv[2])}})
        return
    elif mode == "close-output":
        os.close(1)
        time.sleep(600)
    elif mode == "answer-and-exit":
        say({"id": ident, "result": {"last": True}})
        os._exit(0)
    elif mode == "silent":
        return
    say({"id": ident, "result": {"pid": os.getpid(), "env": dict(os.environ), "cwd": str(Path.cwd())}})


def main() -> None:
    mode = sys.argv[1]
    if mode == "exit-at-once":
        sys.stderr.write("cannot find my settings\n")
        sys.exit(3)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        grandchild = subprocess.Popen([sys.executable, "-c", code])
        Path(sys.argv[2]).write_text(f"{os.getpid()} {grandchild.pid}")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize" and mode != "never-ready":
            say({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
            say({"id": message["id"], "result": {"serverInfo": {"name": mode}, "seen": message["id"]}})
        elif message.get("method") == "tools/call":
            call(mode, message["id"])
        elif message.get("method") == "notifications/initialized" and mode == "tells":
            say({"method": "notifications/ready"})
    if mode == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main()
