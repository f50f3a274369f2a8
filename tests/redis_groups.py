"""Several Redis servers that belong together: a Cluster, or a primary with replicas under Sentinel.

They listen on TCP ports of 127.0.0.1, since nodes tell clients where the others are; nothing is kept on
disk but what a node or a Sentinel has to write of itself.
"""

from __future__ import annotations

import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from redis import Redis

from tests.processes import Process, wait_port

HOST: Final = "127.0.0.1"
SLOTS: Final = 16_384
_NODE_MS: Final = 600
_READY_S: Final = 20.0
# Both below those that the system gives to whoever asks for any.
_PORTS: Final = (10_000, 22_000)
_TO_BUS: Final = 10_000


class Node:
    """One server on a TCP port, and a client of its own."""

    def __init__(self, binary: Path, folder: Path, *options: str) -> None:
        self.port = _port_with_bus()
        self._command = [str(binary), "--port", str(self.port), "--bind", HOST, "--save", ""]
        self._command += ["--appendonly", "no", "--dir", str(folder), *options]
        # redis-py leaves most of its methods' types open.
        self.redis: Any = Redis(host=HOST, port=self.port, socket_timeout=5)
        self.start()

    def __repr__(self) -> str:
        return f"<Node {self.port}: {self.process!r}>"

    def start(self) -> None:
        """Start it, or start it again."""
        self.process = Process(self._command)
        wait_port(self.process, self.port)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def close(self) -> None:
        """End it for good."""
        self.process.kill()
        self.redis.close()


class RedisCluster:
    """Primaries with all slots among them, each with as many replicas as asked for."""

    def __init__(self, binary: Path, *, primaries: int = 3, replicas: int = 0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cluster-")
        self.nodes: list[Node] = []
        self._moved: dict[int, Node] = {}
        try:
            for number in range(primaries * (1 + replicas)):
                self.nodes.append(self._node(binary, number))
            self.primaries = self.nodes[:primaries]
            self._join()
            for number, node in enumerate(self.nodes[primaries:]):
                node.redis.execute_command(
                    "CLUSTER REPLICATE", self.id_of(self.primaries[number % primaries])
                )
            wait_until(self.is_well, "the cluster did not come up")
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<RedisCluster {[node.port for node in self.nodes]}>"

    @property
    def url(self) -> str:
        """The URL of the store, with all nodes."""
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def id_of(self, node: Node) -> str:
        """Return a node's own name in the cluster."""
        return str(node.redis.execute_command("CLUSTER MYID").decode())

    def is_well(self) -> bool:
        """Tell whether every node that runs sees all slots served, and replicas have their data."""
        return all(self._sees_well(node) for node in self.nodes if node.process.code is None)

    def owner_of(self, slot: int) -> Node:
        """Return the primary that has a slot, as long as none has died."""
        return self._moved.get(slot, self.primaries[slot * len(self.primaries) // SLOTS])

    def move(
        self, slot: int, source: Node, target: Node, *, between: Callable[[], None] = lambda: None
    ) -> None:
        """Move a slot with its keys as the resharding tool does; `between` is called when half is done."""
        target.redis.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.redis.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", self.id_of(target))
        between()
        while keys := source.redis.execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
            source.redis.execute_command("MIGRATE", HOST, target.port, "", 0, 5_000, "KEYS", *keys)
        for node in (target, source, *(other for other in self.primaries if other not in (target, source))):
            node.redis.execute_command("CLUSTER SETSLOT", slot, "NODE", self.id_of(target))
        self._moved[slot] = target

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()
        self._folder.cleanup()

    def _node(self, binary: Path, number: int) -> Node:
        folder = Path(self._folder.name) / str(number)
        folder.mkdir()
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_MS))
        return Node(
            binary,
            folder,
            *options,
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        )

    def _join(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.primaries):
            node.redis.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            share = range(
                SLOTS * number // len(self.primaries), SLOTS * (number + 1) // len(self.primaries)
            )
            node.redis.execute_command("CLUSTER ADDSLOTS", *share)
        for node in others:
            node.redis.execute_command("CLUSTER MEET", HOST, first.port)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes did not meet")

    def _knows_all(self, node: Node) -> bool:
        return len(node.redis.execute_command("CLUSTER NODES")) == len(self.nodes) and all(
            "handshake" not in row["flags"] for row in node.redis.execute_command("CLUSTER NODES").values()
        )

    def _sees_well(self, node: Node) -> bool:
        info = node.redis.execute_command("CLUSTER INFO")
        replication = node.redis.info("replication")
        synced = replication["role"] == "master" or replication["master_link_status"] == "up"
        return info["cluster_state"] == "ok" and synced


class Watched:
    """A primary with replicas, and Sentinels that watch them."""

    service: Final = "tasks"

    def __init__(self, binary: Path, *, replicas: int = 1, sentinels: int = 3) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sentinel-")
        self._binary = binary
        self.nodes: list[Node] = []
        self.sentinels: list[Node] = []
        try:
            primary = self._start()
            for _ in range(replicas):
                self._start("--replicaof", HOST, str(primary.port))
            wait_until(self._are_synced, "the replicas did not get the data")
            for number in range(sentinels):
                self.sentinels.append(self._sentinel(number, primary, sentinels // 2 + 1))
            wait_until(self._know_all, "the Sentinels did not meet")
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Watched {[node.port for node in self.nodes]}>"

    @property
    def url(self) -> str:
        """The URL of the store, with all Sentinels."""
        places = ",".join(f"{HOST}:{node.port}" for node in self.sentinels)
        return f"redis+sentinel://{places}/{self.service}"

    @property
    def primary(self) -> Node:
        """The node that the Sentinels name."""
        _, port = self.sentinels[0].redis.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)
        return next(node for node in self.nodes if node.port == int(port))

    def close(self) -> None:
        """End all servers."""
        for node in (*self.sentinels, *self.nodes):
            node.close()
        self._folder.cleanup()

    def _start(self, *options: str) -> Node:
        folder = Path(self._folder.name) / str(len(self.nodes))
        folder.mkdir()
        self.nodes.append(Node(self._binary, folder, "--repl-diskless-sync-delay", "0", *options))
        return self.nodes[-1]

    def _sentinel(self, number: int, primary: Node, quorum: int) -> Node:
        folder = Path(self._folder.name) / f"s{number}"
        folder.mkdir()
        file = folder / "sentinel.conf"
        file.write_text(
            f"sentinel monitor {self.service} {HOST} {primary.port} {quorum}\n"
            f"sentinel down-after-milliseconds {self.service} 500\n"
            f"sentinel failover-timeout {self.service} 3000\n"
        )
        return Sentinel(self._binary, folder, file)

    def _are_synced(self) -> bool:
        return all(
            node.redis.info("replication").get("master_link_status", "up") == "up" for node in self.nodes
        )

    def _know_all(self) -> bool:
        states = [node.redis.sentinel_masters()[self.service] for node in self.sentinels]
        return all(
            state["num-other-sentinels"] == len(self.sentinels) - 1
            and state["num-slaves"] == len(self.nodes) - 1
            for state in states
        )


class Sentinel(Node):
    """One Sentinel."""

    def __init__(self, binary: Path, folder: Path, file: Path) -> None:
        self.port = _port_with_bus()
        self._command = [str(binary), str(file), "--sentinel", "--port", str(self.port), "--bind", HOST]
        self._command += ["--dir", str(folder)]
        self.redis = Redis(host=HOST, port=self.port, socket_timeout=5)
        self.start()


def wait_until(condition: Callable[[], bool], words: str) -> None:
    """Ask again and again until it is so; raise `AssertionError` with `words` where it does not come."""
    deadline = time.monotonic() + _READY_S
    while not condition():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


def _port_with_bus() -> int:
    """Return a free port whose fellow is free too: the nodes talk to each other 10,000 above it."""
    while True:
        port = random.randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as two:
            one.bind((HOST, port))
            two.bind((HOST, port + _TO_BUS))
            return port
