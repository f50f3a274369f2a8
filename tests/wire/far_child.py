"""A stdio server with a state of its own for each process; standard library only.

Its first argument is a file in which it notes each call that it carries out. With `sse PORT` after it,
it serves the legacy HTTP+SSE transport instead, one state for each connection.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

LOG = Path(sys.argv[1])
_noting = threading.Lock()


class Server:
    """One session: a counter, what it asked and what it was told."""

    _numbers = itertools.count(1)

    def __init__(self, out: Callable[[dict[str, Any]], None]) -> None:
        self.out = out
        self.number = next(self._numbers)
        self.count = 0
        self.idents = itertools.count(1)
        self.answers: dict[object, Any] = {}
        self.cancelled: set[object] = set()
        self.changed = threading.Condition()

    def take(self, message: dict[str, Any]) -> None:
        """Take one message."""
        ident, method = message.get("id"), message.get("method")
        if method is None:
            with self.changed:
                self.answers[ident] = message.get("result", message.get("error"))
                self.changed.notify_all()
        elif method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "far", "version": "1"}
            self.say(
                {
                    "id": ident,
                    "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info},
                }
            )
        elif method == "notifications/cancelled":
            with self.changed:
                self.cancelled.add(message["params"]["requestId"])
                self.changed.notify_all()
        elif method == "tools/call":
            threading.Thread(target=self.call, args=(ident, message["params"]), daemon=True).start()
        elif ident is not None:
            self.say({"id": ident, "result": {}})

    def say(self, message: dict[str, Any]) -> None:
        """Write one message."""
        self.out({"jsonrpc": "2.0", **message})

    def call(self, ident: object, params: dict[str, Any]) -> None:
        """Carry out a call."""
        name, arguments = params["name"], params.get("arguments", {})
        with _noting, LOG.open("a") as log:
            log.write(json.dumps({"tool": name, "pid": os.getpid(), **arguments}) + "\n")
        with self.changed:
            self.count += 1
        result = getattr(self, f"tool_{name}")(ident, params, arguments)
        if result is not None:
            self.say({"id": ident, "result": {"content": [], "structuredContent": result}})

    def state(self) -> dict[str, Any]:
        """Return what tells sessions apart."""
        return {"pid": os.getpid(), "session": self.number, "count": self.count}

    def tool_count(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Tell how many calls there were."""
        return self.state()

    def tool_die(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """End without an answer."""
        os._exit(3)

    def tool_large(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Answer with so many bytes."""
        return {"text": "x" * arguments["bytes"]}

    def tool_echo(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Answer with the argument's length."""
        return {"length": len(arguments["text"])}

    def tool_progress(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Tell of progress so many times."""
        token = params["_meta"]["progressToken"]
        for number in range(arguments["times"]):
            body = {"progressToken": token, "progress": number, "message": "p" * arguments.get("bytes", 1)}
            self.say({"method": "notifications/progress", "params": body})
        return self.state()

    def tool_ask(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Ask the client for a name."""
        asked = f"q{next(self.idents)}"
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        body = {"message": "Name?", "requestedSchema": schema}
        self.say({"id": asked, "method": "elicitation/create", "params": body})
        with self.changed:
            self.changed.wait_for(lambda: asked in self.answers, 60)
            return {**self.state(), "answer": self.answers.get(asked)}

    def tool_wait(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Say that it waits, then wait for a file, or to be cancelled: then there is no answer."""
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            self.say(
                {"method": "notifications/progress", "params": {"progressToken": token, "progress": 0}}
            )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with self.changed:
                if ident in self.cancelled:
                    with _noting, LOG.open("a") as log:
                        log.write(json.dumps({"cancelled": ident}) + "\n")
                    return None
            if Path(arguments["file"]).exists():
                break
            time.sleep(0.02)
        return self.state()

    def tool_news(self, ident: object, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        """Answer, then say so many things that belong to no call."""
        self.say({"id": ident, "result": {"content": [], "structuredContent": self.state()}})
        for number in range(arguments["times"]):
            self.say({"method": "notifications/message", "params": {"level": "info", "data": number}})


class Events(BaseHTTPRequestHandler):
    """Legacy HTTP+SSE: a stream for each session, and an endpoint to post to."""

    protocol_version = "HTTP/1.1"
    servers: ClassVar[dict[str, Server]] = {}

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Open a session and write its messages until the client goes."""
        lock = threading.Lock()
        gone = threading.Event()

        def out(message: dict[str, Any]) -> None:
            with lock:
                try:
                    self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                    self.wfile.flush()
                except OSError:
                    gone.set()

        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        server = Server(out)
        self.servers[str(server.number)] = server
        self.wfile.write(f"event: endpoint\ndata: /messages?{server.number}\n\n".encode())
        self.wfile.flush()
        while not gone.wait(0.2):
            with lock:
                try:
                    self.wfile.write(b": here\n\n")
                    self.wfile.flush()
                except OSError:
                    break
        del self.servers[str(server.number)]
        self.close_connection = True

    def do_POST(self) -> None:
        """Take a message of a session."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.servers.get(urlsplit(self.path).query)
        self.send_response(404 if server is None else 202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if server is not None:
            server.take(json.loads(body))


def main() -> None:
    """Serve until the input ends, or for ever."""
    if len(sys.argv) > 2:
        site = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Events)
        site.daemon_threads = True
        sys.stdout.write(f"ready http://127.0.0.1:{site.server_port}/sse\n")
        sys.stdout.flush()
        site.serve_forever()
    lock = threading.Lock()

    def out(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    server = Server(out)
    for line in sys.stdin:
        server.take(json.loads(line))


if __name__ == "__main__":
    main()
