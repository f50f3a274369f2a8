"""The dashboard and the alerts in a real Prometheus, and the Dockerfile's steps in a clean folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from gateway.observe.metrics import CONTENT_TYPE, Metrics
from tests import deployment
from tests.deployment import DEPLOY
from tests.processes import ROOT, Process, free_port

PANELS = [*deployment.panel_queries()]
# Writes as anybody, which is nowhere; reads as root, since the interpreter may lie in a folder of root's.
ANYBODY = (
    "setpriv",
    "--reuid=10001",
    "--regid=10001",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)


@pytest.fixture(scope="module")
def scraped() -> Iterator[int]:
    """Serve `/metrics` of a gateway where something happens before each scrape."""
    metrics = Metrics("0.0.0")

    class Admin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            deployment.count_once(metrics)
            body = deployment.shown(metrics)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Admin)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


class Prometheus:
    """Asks a Prometheus over its HTTP API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **query: str) -> Any:
        with urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}", timeout=10
        ) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        return self.get("query", query=query)["result"]

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="module")
def prometheus(scraped: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run Prometheus with the project's configuration, at another pace and with our gateway as target."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = deployment.read_yaml("prometheus/prometheus.yml")
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{scraped}"]}]
    (folder / "prometheus.yml").write_text(json.dumps(config))
    shutil.copy(DEPLOY / "prometheus/rules.yml", folder)
    port = free_port()
    command = [
        deployment.program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with Process(command) as process:
        process.wait_line("Server is ready to receive web requests")
        asked = Prometheus(port)
        asked.wait(lambda: any(int(s["value"][1]) >= 3 for s in asked.ask("count_over_time(up[1m])")))
        yield asked


@pytest.mark.parametrize(("title", "query", "legend"), PANELS)
def test_each_query_of_the_dashboard_finds_something(
    title: str, query: str, legend: str, prometheus: Prometheus
) -> None:
    result = prometheus.ask(query.replace("$__rate_interval", "30s").replace("$upstream", "demo|reports"))
    assert result, title
    for series in result:
        assert deployment.labels_in_words(legend) <= series["metric"].keys()


def test_the_metric_of_the_autoscaler_is_one_number_for_each_replica(prometheus: Prometheus) -> None:
    (rule,) = deployment.read_yaml("kubernetes/prometheus-adapter.yaml")["rules"]["custom"]
    query = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'job="mcp-task-gateway"')
    (series,) = prometheus.ask(query.replace("<<.GroupBy>>", "instance"))
    assert series["value"][1] == "1"


def test_prometheus_evaluates_every_alert(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        return prometheus.get("rules")["groups"][0]["rules"]

    prometheus.wait(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules()} == {
        (name, "ok", "") for name, _, _ in deployment.alert_queries()
    }


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """Do what the first stage of the Dockerfile does, in a folder instead of in a container."""
    # Not below pytest's folders, which only their owner may enter.
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "src").mkdir()
        first_stage = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "").split("\nFROM ")[1]
        for line in first_stage.splitlines():
            _follow(line, root)
        yield root / "gateway"


def _follow(line: str, root: Path) -> None:
    word, _, rest = line.partition(" ")
    if word == "COPY":
        *names, target = rest.split()
        for name in names:
            _copy(ROOT / name, root / "src" / target, into=target.endswith("/"))
    elif word == "RUN":
        script = rest.replace("/opt/gateway", f"{root}/gateway")
        script = re.sub(r"\bpython -m venv", f"{sys.executable} -m venv", script)
        # With the package cache of this machine, so that a test run costs no downloads.
        script = script.replace("--no-cache-dir ", "")
        done = subprocess.run(
            ["/bin/sh", "-ec", script],
            cwd=root / "src",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _copy(origin: Path, target: Path, *, into: bool) -> None:
    place = target / origin.name if into else target
    place.parent.mkdir(parents=True, exist_ok=True)
    if origin.is_dir():
        shutil.copytree(origin, place, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(origin, place)


def run(image: Path, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the image, in an environment as bare as the image's."""
    whole = {"PATH": f"{image}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"} | (env or {})
    return subprocess.run(
        command,
        cwd=image,
        env=whole,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.timeout(300)
def test_the_image_has_the_command_for_a_user_that_is_not_root(image: Path) -> None:
    anybody = ANYBODY if os.geteuid() == 0 else ()
    done = run(image, *anybody, f"{image}/bin/mcp-task-gateway", "--help")
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


@pytest.mark.timeout(300)
def test_the_image_accepts_the_gateway_yaml_that_compose_mounts(image: Path) -> None:
    config = image.parent / "gateway.yaml"
    shutil.copy(DEPLOY / "gateway.yaml", config)
    env = {"GATEWAY_STORE__PASSWORD": "0123456789abcdef", "GATEWAY_SECRET": "0123456789abcdef"}
    done = run(image, f"{image}/bin/mcp-task-gateway", "check", "-c", str(config), env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_image_has_the_webhook_behind_its_door_and_neither_installer_nor_foreign_top_level(
    image: Path,
) -> None:
    code = (
        "from gateway.hooks.loader import load; import importlib.util as i;"
        "print(type(load([('webhook', {})])[0]).__module__, i.find_spec('plugins'), i.find_spec('pip'))"
    )
    done = run(image, f"{image}/bin/python", "-c", code)
    assert done.stdout == "mcp_task_gateway_plugins.webhook None None\n", done.stderr
