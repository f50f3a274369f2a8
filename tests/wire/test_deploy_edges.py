"""Envoy and Traefik, as `deploy/` has them, in front of three replicas: tasks, streams, losses."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import redis_servers, upstreams
from tests.edges import EDGES, HOST, REPLICAS, Edge, Replica, free_everywhere
from tests.processes import ROOT, START
from tests.redis_servers import RedisServer
from tests.tools import ToolMissing
from tests.upstreams import Running

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class World:
    """Three replicas on one Redis with one upstream, behind each kind of edge."""

    def __init__(self, ends: ExitStack, place: Path) -> None:
        found = redis_servers.find_servers()
        if not found:
            raise ToolMissing("no Redis server here")
        self.redis: RedisServer = redis_servers.start([*found.values()][-1])
        ends.callback(self.redis.close)
        self.upstream: Running = upstreams.start_fixture("mcp2", "http", log=place / "runs.jsonl")
        ends.callback(self.upstream.process.stop)
        config = {
            "store": {"url": self.redis.url},
            "secret": "0123456789abcdef",
            "upstreams": {
                "demo": {
                    "url": self.upstream.url,
                    "tasks": {"poll_interval": "300ms", "inline_within": "0s"},
                }
            },
            "drain_delay": "0s",
        }
        ports = (free_everywhere(), free_everywhere())
        self.replicas = [Replica(host, ports, config, place) for host in REPLICAS[:2]]
        self.replicas.append(Replica(REPLICAS[2], ports, {**config, "drain_delay": "5s"}, place))
        for replica in self.replicas:
            ends.callback(replica.end)
        self.edges = {kind: Edge(kind, ports, place) for kind in EDGES}
        for edge in self.edges.values():
            ends.callback(edge.end)
        for replica in self.replicas:
            replica.wait(200)

    def served(self) -> list[float]:
        """Return how many messages each replica has answered."""
        counts = [
            re.findall(r"^mcp_gateway_requests_total\{.* (\S+)$", replica.admin("/metrics")[1], re.M)
            for replica in self.replicas
        ]
        return [sum(map(float, found)) for found in counts]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as ends:
        yield World(ends, tmp_path_factory.mktemp("edges"))


def plain(tool: str, **arguments: Any) -> tuple[str, dict[str, str]]:
    """Return body and headers of a plain call of the stateless era."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": {**META, "progressToken": 7}},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    return json.dumps(message), headers


def call(port: int, tool: str, **arguments: Any) -> tuple[HTTPConnection, HTTPResponse]:
    """Make a plain call of the stateless era; return the connection and the answer, unread."""
    connection = HTTPConnection(HOST, port, timeout=30)
    connection.request("POST", "/demo/mcp", *plain(tool, **arguments))
    return connection, connection.getresponse()


def wait_event(world: World, runs: int, event: str) -> None:
    """Wait for an event of the upstream's log, after its first lines."""
    deadline = time.monotonic() + START
    while event not in {run["event"] for run in world.upstream.runs()[runs:]}:
        assert time.monotonic() < deadline, world.upstream.runs()[runs:]
        time.sleep(0.05)


@pytest.mark.parametrize("dialect", ["a", "b", "c"])
@pytest.mark.parametrize("kind", EDGES)
def test_I6_a_task_of_each_dialect_runs_once_though_every_request_goes_to_another_replica(
    kind: str, dialect: str, world: World
) -> None:
    runs, served = len(world.upstream.runs()), world.served()
    url = f"http://{HOST}:{world.edges[kind].port}/demo/mcp"
    command = ["call", url, "slow_count", "seconds=1", "--task", "--dialect", dialect]
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "Counted for 1 seconds.\n", done.stderr
    started = [run for run in world.upstream.runs()[runs:] if run["event"] == "start"]
    assert len(started) == 1
    after = world.served()
    assert sum(now > before for now, before in zip(after, served, strict=True)) > 1


@pytest.mark.parametrize("kind", EDGES)
def test_requests_are_dealt_out_in_turn_even_on_one_connection(kind: str, world: World) -> None:
    before = world.served()
    for _ in range(9):
        connection, answer = call(world.edges[kind].port, "echo_meta")
        with closing(connection):
            assert answer.status == 200
            answer.read()
    gained = [after - served for after, served in zip(world.served(), before, strict=True)]
    assert max(gained) <= 2 * min(gained), gained


@pytest.mark.parametrize("kind", EDGES)
def test_I1_each_event_of_a_stream_is_passed_on_when_it_comes(kind: str, world: World) -> None:
    connection, answer = call(world.edges[kind].port, "slow_count", seconds=3, steps=6)
    with closing(connection):
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        came = [time.monotonic() for line in answer if line.startswith(b"data: {")]
    assert len(came) >= 7
    gaps = [later - earlier for earlier, later in pairwise(came[:7])]
    assert min(gaps) > 0.2, gaps


@pytest.mark.parametrize("kind", EDGES)
def test_I11_a_client_that_closes_a_plain_stateless_call_cancels_it(kind: str, world: World) -> None:
    runs = len(world.upstream.runs())
    connection = HTTPConnection(HOST, world.edges[kind].port, timeout=30)
    connection.request("POST", "/demo/mcp", *plain("never"))
    wait_event(world, runs, "start")
    connection.close()
    wait_event(world, runs, "cancelled")


@pytest.mark.parametrize("kind", EDGES)
def test_a_large_result_and_a_large_argument_pass(kind: str, world: World) -> None:
    connection, answer = call(world.edges[kind].port, "large", kib=4096, padding="x" * 3_000_000)
    with closing(connection):
        assert answer.status == 200
        assert len(answer.read()) > 4 << 20


def test_I9_plain_calls_go_on_through_the_edges_when_redis_is_away(world: World) -> None:
    world.redis.stop()
    for replica in world.replicas:
        replica.wait(503)
        replica.wait(200, "/readyz?exclude=store&exclude=upstreams")
    # Longer than it takes either to see that nobody is ready.
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        for kind, edge in world.edges.items():
            connection, answer = call(edge.port, "echo_meta")
            with closing(connection):
                assert answer.status == 200, (kind, answer.read())
                answer.read()
    world.redis.start()
    for replica in world.replicas:
        replica.wait(200)


def test_nobody_notices_that_a_replica_leaves(world: World) -> None:
    leaving = world.replicas[-1].process
    leaving.send(signal.SIGTERM)
    after = 0
    while after < 20:
        after += leaving.code is not None
        for kind, edge in world.edges.items():
            connection, answer = call(edge.port, "echo_meta")
            with closing(connection):
                assert answer.status == 200, (kind, answer.read())
                answer.read()
    assert leaving.code == 0


class Fake:
    """Takes requests on a replica's two ports; a POST is counted, then answered or cut off."""

    def __init__(self, host: str, ports: tuple[int, int], *, answers: bool, listens: bool = True) -> None:
        self.answers = answers
        self.posts = self.asked = 0
        self._sockets = [socket.create_server((host, port)) for port in (ports if listens else ports[1:])]
        for one in self._sockets:
            threading.Thread(target=self._listen, args=(one,), daemon=True).start()

    def wait_known(self) -> None:
        """Wait until the edge has asked for the readiness twice: then it has heard the first answer."""
        deadline = time.monotonic() + START
        while self.asked < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def close(self) -> None:
        for one in self._sockets:
            one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _listen(self, listening: socket.socket) -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        # Whoever asked may be gone.
        with suppress(OSError), taken, taken.makefile("rb") as lines:
            while first := lines.readline():
                length = 0
                while (line := lines.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                lines.read(length)
                self.asked += first.startswith(b"GET /readyz")
                if first.startswith(b"POST"):
                    self.posts += 1
                    if not self.answers:
                        taken.shutdown(socket.SHUT_RDWR)
                        return
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("answers", [True, False], ids=["two refuse", "all cut off"])
def test_I3_only_a_call_that_no_replica_has_received_is_sent_again(
    kind: str, answers: bool, tmp_path: Path
) -> None:
    ports = (free_everywhere(), free_everywhere())
    fakes = [
        Fake(host, ports, answers=answers, listens=not answers or host == REPLICAS[-1]) for host in REPLICAS
    ]
    edge = Edge(kind, ports, tmp_path)
    try:
        for fake in fakes:
            fake.wait_known()
        told: list[int] = []
        for _ in range(9):
            connection, answer = call(edge.port, "echo_meta")
            with closing(connection):
                told.append(answer.status)
                body = answer.read()
                if kind == "envoy" and not answers:
                    assert json.loads(body)["error"]["code"] == -32603
                    assert answer.headers["Retry-After"] == "2"
        assert (sum(fake.posts for fake in fakes), told) == (9, [200] * 9 if answers else [told[0]] * 9)
        assert told[0] in {200, 502, 503}
    finally:
        edge.end()
        for fake in fakes:
            fake.close()
