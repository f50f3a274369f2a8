"""HAProxy and nginx in front of replicas, with the very files of `deploy/`.

`GATEWAY_FRONT` chooses what the wire tests speak to: `direct` (the default), `haproxy`, `nginx`, or
`alternate`, where one half of the modules goes through each. With `mixed` what keeps its tasks in memory
is one gateway, and what has a Redis is behind a balancer; `rest` are the tests that this leaves out.
`serve` and `replicas` start what is chosen.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

from tests import redis_servers
from tests.gateways import HOST, Gateway
from tests.processes import ROOT, START, Process, free_port, wait_port
from tests.redis_servers import RedisServer
from tests.tools import ToolMissing

FRONTS: Final = ("haproxy", "nginx")
REPLICAS: Final = 3
_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_PROGRAMS: Final = {"haproxy": "/usr/sbin/haproxy", "nginx": "/usr/sbin/nginx"}


class Choice:
    """Which front the tests of this process speak to; `now` is that of the running test's module."""

    def __init__(self, word: str) -> None:
        if word not in ("direct", "rest", "mixed", "alternate", *FRONTS):
            raise ValueError(f"GATEWAY_FRONT={word}: direct, haproxy, nginx, alternate, mixed or rest")
        # Who has no balancers has all the tests all the same, but for those of the balancers.
        self.word = "direct" if word == "mixed" and not _are_here() and not os.environ.get("CI") else word
        self.now = FRONTS[0]
        self._redis: RedisServer | None = None

    @property
    def balanced(self) -> bool:
        """Tell whether a balancer is in front."""
        return self.word not in ("direct", "rest")

    @property
    def wanted(self) -> tuple[str, ...]:
        """The balancers that this run needs."""
        return FRONTS if self.word in ("alternate", "mixed") else (self.word,)

    def balances(self, config: Mapping[str, Any]) -> bool:
        """Tell whether what has this configuration is to be behind a balancer."""
        in_memory = config.get("store", {}).get("url", "memory://").startswith("memory:")
        return self.balanced and not (in_memory and self.word == "mixed")

    @property
    def doors(self) -> int:
        """How many replicas answer at a gateway's port, by turns."""
        return REPLICAS if self.balanced else 1

    def turn_to(self, module: str) -> None:
        """Let the tests of a module speak to its front: always the same one."""
        self.now = self.wanted[zlib.crc32(module.encode()) % len(self.wanted)]

    def redis_url(self) -> str:
        """Return the URL of the Redis for deployments that name none; started when first asked for."""
        if self._redis is None:
            found = redis_servers.find_servers()
            if not found:
                raise ToolMissing("no Redis server here")
            self._redis = redis_servers.start(found.get("valkey") or list(found.values())[-1])
        return self._redis.url

    def close(self) -> None:
        """End the Redis."""
        if self._redis is not None:
            self._redis.close()
            self._redis = None


def _are_here() -> bool:
    """Tell whether there are all balancers."""
    return all(shutil.which(kind) or Path(path).exists() for kind, path in _PROGRAMS.items())


CHOICE: Final = Choice(os.environ.get("GATEWAY_FRONT", "direct"))


class Replica(Protocol):
    """What a balancer has to know of a replica."""

    port: int
    admin_port: int


class Balancer:
    """A running HAProxy or nginx."""

    def __init__(self, kind: str, gateways: Sequence[Replica], place: Path) -> None:
        self.kind = kind
        self.port = free_port()
        self._file = place / f"{kind}-{self.port}.conf"
        self._file.write_text(configured(kind, self.port, gateways, place), encoding="utf-8")
        self.process: Process | None = None

    def __repr__(self) -> str:
        return f"<Balancer {self.kind}: {self.process}>"

    def start(self, timeout: float = START) -> None:
        """Start it where it is not, and wait until it listens.

        One that is there before its replicas would call them down and not see at once that they are up.
        """
        if self.process is None:
            self.process = Process(command(self.kind, self._file))
        wait_port(self.process, self.port, timeout)

    def wait_line(self, pattern: str) -> None:
        """Wait until it says something."""
        assert self.process is not None
        self.process.wait_line(pattern)

    def end(self) -> None:
        """End it; raise `AssertionError` where it had ended by itself."""
        process, self.process = self.process, None
        if process is not None:
            code = process.code
            process.stop()
            assert code is None, f"{self.kind} ended with {code}\n{process.text}"


class Balanced(Gateway):
    """Three replicas on one Redis behind balancers: to clients, one gateway."""

    # The parent's start is that of a single process.
    def __init__(
        self, config: Mapping[str, Any], place: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.config = dict(config)
        store: dict[str, Any] = {"url": "memory://", **config.get("store", {})}
        if store["url"] == "memory://":
            store = {"prefix": f"{uuid.uuid4().hex}:", **store, "url": CHOICE.redis_url()}
        self.config["store"] = store
        for kind in CHOICE.wanted:
            program(kind)
        self.gateways = [Gateway(self.config, place, env) for _ in range(REPLICAS)]
        self.config = {**self.gateways[0].config, "store": store}
        self.balancers = {kind: Balancer(kind, self.gateways, place) for kind in CHOICE.wanted}

    @property
    def port(self) -> int:
        """The port of the balancer of the running test."""
        return self.balancers[CHOICE.now].port

    @property
    def process(self) -> Process:
        """No test behind a balancer may know which process it speaks to."""
        raise AssertionError('there are three replicas: mark the test one_replica("why")')

    def admin(self, path: str) -> tuple[int, str]:
        """Return `/metrics` added up over the replicas; of another path the first answer but 200."""
        answers = [gateway.admin(path) for gateway in self.gateways]
        if path == "/metrics":
            return max(status for status, _ in answers), added_up([body for _, body in answers])
        return next((answer for answer in answers if answer[0] != 200), answers[0])

    def wait(self, path: str = "/healthz", timeout: float = START) -> None:
        """Wait for each replica, then start the balancers; where one fails, none is left behind."""
        try:
            for gateway in self.gateways:
                gateway.wait(path, timeout)
            for balancer in self.balancers.values():
                balancer.start(timeout)
        except (AssertionError, OSError):
            for gateway in self.gateways:
                gateway.process.kill()
            raise

    def end(self) -> None:
        """End all; raise `AssertionError` for what any of them did wrong."""
        parts: list[Gateway | Balancer] = [*self.gateways, *self.balancers.values()]
        with ThreadPoolExecutor(len(parts)) as ends:
            for end in [ends.submit(part.end) for part in parts]:
                end.result()


def serve(config: Mapping[str, Any], place: Path, env: Mapping[str, str] | None = None) -> Gateway:
    """Start a gateway, or what stands for one in this run; the caller waits for it and ends it."""
    return (Balanced if CHOICE.balances(config) else Gateway)(config, place, env)


def replicas(config: Mapping[str, Any], place: Path, number: int) -> list[Gateway]:
    """Start so many replicas; behind a balancer all of them are one."""
    return [serve(config, place) for _ in range(1 if CHOICE.balances(config) else number)]


def program(kind: str) -> str:
    """Return the path of a balancer; raise `ToolMissing`."""
    found = shutil.which(kind) or shutil.which(_PROGRAMS[kind])
    if found is None:
        raise ToolMissing(f"{kind} is missing: install the Debian package '{kind}'")
    return found


def command(kind: str, file: Path, *, check: bool = False) -> list[str]:
    """Return the command line that runs a configuration, or checks it."""
    if kind == "haproxy":
        return [program(kind), *(["-c"] if check else ["-db"]), "-f", str(file)]
    if check:
        return [program(kind), "-t", "-e", "stderr", "-c", str(file)]
    return [program(kind), "-e", "stderr", "-c", str(file), "-g", "daemon off;"]


def configured(kind: str, port: int, gateways: Sequence[Replica], place: Path) -> str:
    """Return the file of `deploy/` with the addresses, ports and folders of a test."""
    swaps: list[tuple[str, str]] = []
    for number, gateway in enumerate(gateways, 1):
        name, to = f"gateway-{number}", f"{HOST}:{gateway.port}"
        if kind == "haproxy":
            swaps.append((f" {name}:8080", f" {to} port {gateway.admin_port}"))
        else:
            swaps.append((f"server {name}:8080", f"server {to}"))
    if kind == "haproxy":
        swaps += [("bind :8080", f"bind {HOST}:{port}"), (" maxconn 20000", " maxconn 2000")]
    else:
        folder = place / f"nginx-{port}"
        folder.mkdir()
        kept = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in _TEMPORARY)
        swaps += [
            ("listen 8080", f"listen {HOST}:{port}"),
            ("pid /run/nginx.pid", f"pid {folder}/pid"),
            ("error_log /var/log/nginx/error.log", "error_log stderr"),
            ("access_log /var/log/nginx/access.log", "access_log off"),
            ("worker_rlimit_nofile 65536;\n", ""),
            ("worker_connections 20000", "worker_connections 500"),
            ("worker_processes auto", f"{'' if os.geteuid() else 'user root; '}worker_processes 2"),
            ("http {\n", f"http {{\n{kept}"),
        ]
    text = example(kind).read_text(encoding="utf-8")
    for old, new in swaps:
        assert old in text, f"{old!r} is not in {example(kind)}"
        text = text.replace(old, new)
    return text


def example(kind: str) -> Path:
    """Return the file of `deploy/` for a balancer."""
    return ROOT / "deploy" / kind / {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[kind]


def added_up(expositions: list[str]) -> str:
    """Return the samples of several `/metrics`, each the sum of those of its name and labels."""
    sums: dict[str, float] = defaultdict(float)
    lines: list[str] = []
    for line in "\n".join(expositions).splitlines():
        found = re.fullmatch(r"([^#\s].*) (\S+)", line)
        name = found[1] if found else line
        if name not in sums and name not in lines:
            lines.append(name)
        if found:
            sums[name] += float(found[2])
    return "".join(f"{line} {sums[line]}\n" if line in sums else f"{line}\n" for line in lines)
