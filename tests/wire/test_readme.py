"""Every command and snippet of the README is run as it stands, with other ports only."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import readme
from tests.gateways import HOST, StartGateway
from tests.processes import ROOT, Process, free_port

pytestmark = pytest.mark.one_replica("runs the commands of the README")

PORT, ADMIN_PORT = "8080", "9090"
COMMAND = """\
#!{python}
import sys
from gateway.cli import main
sys.exit(main())
"""
NPX = """\
#!/bin/sh
printf '%s\\n' "$API_KEY" "$@" > "{place}/npx-was-asked"
exec "{python}" -m gateway.demo
"""
DEMO = [sys.executable, "-m", "gateway.demo"]
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"


class Place:
    """A folder with `.venv/bin/mcp-task-gateway` in it, and an environment that finds it.

    `npx` is one that starts the demo server, whatever package it is asked for.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        programs = root / ".venv" / "bin"
        programs.mkdir(parents=True)
        self._program(programs / "mcp-task-gateway", COMMAND)
        self._program(programs / "npx", NPX)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "WEBHOOK_SECRET": SECRET}
        self.ports = {PORT: str(free_port()), ADMIN_PORT: str(free_port())}
        self.env |= {
            "GATEWAY_LISTEN__PORT": self.ports[PORT],
            "GATEWAY_ADMIN__PORT": self.ports[ADMIN_PORT],
        }

    def _program(self, file: Path, content: str) -> None:
        file.write_text(content.format(python=sys.executable, place=self.root), encoding="utf-8")
        file.chmod(0o755)

    def here(self, words: str) -> str:
        """Return the README's words with the ports of this place."""
        for said, port in self.ports.items():
            words = words.replace(f"{HOST}:{said}", f"{HOST}:{port}")
        return words

    def there(self, words: str) -> str:
        """Return words of this place with the README's ports."""
        for said, port in self.ports.items():
            words = words.replace(f"{HOST}:{port}", f"{HOST}:{said}")
        return words

    def bash(self, script: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the README; both outputs come in the order in which a terminal has them."""
        return subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{self.here(script)}"],
            cwd=self.root,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def serve(self, command: str, **env: str) -> Process:
        """Start a command of the README that serves."""
        script = f"cd '{self.root}' && exec {self.here(command)}"
        return Process(["bash", "-c", script], {**self.env, **env})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def make(target: str) -> str:
    """Return what `make` would do for a target on a fresh machine."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    # What pytest itself was started by must not steer it.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", target],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


@pytest.fixture
def transcripts() -> dict[str, list[str]]:
    """Return the outputs of the two commands."""
    return {
        step.command: step.output for block in readme.blocks("console make") for step in readme.steps(block)
    }


def test_make_run_says_what_the_readme_shows(transcripts: dict[str, list[str]], place: Place) -> None:
    recipe = make("run")
    served = "Store: memory:"
    shown = transcripts["make run"]
    begin = next(number for number, line in enumerate(shown) if line.startswith(served))
    for line in shown[:begin]:
        assert line.rstrip(readme.CUT) in recipe
    command = recipe.splitlines()[-1].removeprefix("exec ")
    with place.serve(command) as process:
        process.wait_line("^Metrics and health")
        # Of the log, which has an output of its own, some lines may be there already.
        said = [line for line in place.there(process.text).splitlines() if not line.startswith("{")]
        assert said == shown[begin:]


def test_make_test_runs_what_the_readme_says(transcripts: dict[str, list[str]]) -> None:
    recipe = make("test")
    assert transcripts["make test"][0] in recipe
    assert " -m pytest " in recipe.splitlines()[-1]


@pytest.mark.timeout(180)
def test_every_transcript_is_what_really_happens(place: Place) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    said = [step for block in readme.blocks("console") for step in readme.steps(block)]
    script = "".join(f"printf '\\n@@@\\n'\n{step.command}\n" for step in said)
    with place.serve(".venv/bin/mcp-task-gateway serve --demo") as process:
        process.wait_line("^Metrics and health")
        done = place.bash(script, timeout=150)
    came = place.there(done.stdout).split("\n@@@\n")[1:]
    assert len(came) == len(said)
    for step, output in zip(said, came, strict=True):
        assert readme.fits(step.output, output), f"$ {step.command}\n{output}"


@pytest.fixture
def written(place: Place) -> Place:
    """Write the README's configuration as `gateway.yaml`."""
    (yaml_block,) = readme.blocks("yaml")
    assert len(yaml_block.splitlines()) <= 10
    (place.root / "gateway.yaml").write_text(yaml_block, encoding="utf-8")
    return place


def test_each_shell_command_does_what_is_written_beside_it(written: Place, redis_url: str) -> None:
    ran: set[str] = set()
    for line in readme.blocks("sh")[0].splitlines():
        command, _, words = line.partition("#")
        ran.add(command.split()[1])
        if " serve " in line:
            with written.serve(command, GATEWAY_STORE__URL=redis_url) as process:
                process.wait_line("^Metrics and health")
                for path in ("/reports/mcp", "/files/mcp"):
                    assert f"http://{HOST}:{written.ports[PORT]}{path}\n" in process.text
                    assert path in words
            continue
        done = written.bash(command)
        assert done.returncode == 0, done.stdout
        if " schema" in command:
            assert json.loads(done.stdout)["$schema"]
        else:
            assert done.stdout == "gateway.yaml: good; 2 upstreams: reports, files\n"
    assert ran == {"check", "serve", "schema"}


def test_check_names_file_and_line_of_a_mistake(written: Place) -> None:
    file = written.root / "gateway.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("timeout: 4h", "timeout: 4x"), encoding="utf-8")
    line = next(number for number, words in enumerate(text.splitlines(), 1) if "timeout" in words)
    done = written.bash("mcp-task-gateway check -c gateway.yaml")
    assert done.returncode == 2
    assert done.stdout.startswith(
        f'gateway.yaml:{line}: upstreams.reports.tasks.tools."render_*".timeout: '
    )


class Hosted:
    """The server of the JSON snippet, as a desktop host would start it."""

    def __init__(self, place: Place) -> None:
        (snippet,) = readme.blocks("json")
        (self.server,) = json.loads(snippet)["mcpServers"].values()
        self.command = [self.server["command"], *self.server["args"]]
        env = {**place.env, **self.server["env"]}
        for name in ("GATEWAY_LISTEN__PORT", "GATEWAY_ADMIN__PORT"):
            del env[name]
        self.started: dict[str, Any] = {
            "executable": str(place.root / ".venv" / "bin" / self.server["command"]),
            "cwd": place.root,
            "env": env,
            "text": True,
        }


def test_a_host_that_starts_the_json_snippet_gets_tasks(place: Place) -> None:
    hosted = Hosted(place)
    server = hosted.server
    asked = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    task = {"modelcontextprotocol.io/task": {"taskId": "one"}}
    call = {"name": "slow_count", "arguments": {"seconds": 0}, "_meta": task}
    lines = [
        {"id": 1, "method": "initialize", "params": asked},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    host = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    done = subprocess.run(
        hosted.command, input=host, capture_output=True, timeout=30, check=True, **hosted.started
    )
    came = [json.loads(line) for line in done.stdout.splitlines()]
    results = {message["id"]: message["result"] for message in came if "result" in message}
    declared: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert results[1]["capabilities"]["tasks"] == {"tools": {"call": True}, **declared}
    assert results[2]["content"][0]["text"] == "Counted for 0 seconds."
    assert [message["method"] for message in came if "method" in message] == ["notifications/tasks/created"]
    was_asked = (place.root / "npx-was-asked").read_text(encoding="utf-8").splitlines()
    assert was_asked == [*server["env"].values(), *server["args"][3:]]


@pytest.mark.timeout(60)
def test_a_stateless_host_that_starts_the_json_snippet_gets_tasks(place: Place) -> None:
    hosted = Hosted(place)
    name = "io.modelcontextprotocol"
    capabilities: dict[str, Any] = {"extensions": {f"{name}/tasks": {}}}
    meta: dict[str, Any] = {
        f"{name}/protocolVersion": "2026-07-28",
        f"{name}/clientCapabilities": capabilities,
    }
    process = subprocess.Popen(
        hosted.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **hosted.started
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
            message: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": number,
                "method": method,
                "params": {**params, "_meta": meta},
            }
            print(json.dumps(message), file=process.stdin, flush=True)
            for line in process.stdout or ():
                came = json.loads(line)
                if came.get("id") == number:
                    return came["result"]
            raise AssertionError(f"no answer to {method}")

        assert ask(1, "server/discover")["capabilities"]["extensions"] == {f"{name}/tasks": {}}
        # Longer than `inline_within`, so that it becomes a task.
        task = ask(2, "tools/call", name="slow_count", arguments={"seconds": 3})
        assert task["resultType"] == "task"
        assert ask(3, "tasks/get", taskId=task["taskId"])["status"] == "working"
        process.stdin.close()
        assert process.wait(30) == 0


class Receiver(http.server.ThreadingHTTPServer):
    """Takes what a webhook posts."""

    def __init__(self) -> None:
        self.came: list[tuple[Mapping[str, str], dict[str, Any]]] = []
        self.one = threading.Event()
        super().__init__((HOST, 0), _Post)


class _Post(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Receiver)
        self.server.came.append((dict(self.headers.items()), json.loads(body)))
        self.send_response(204)
        self.end_headers()
        self.server.one.set()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_webhook_snippet_is_accepted_and_tells_of_a_task(
    written: Place, receiver: Receiver, gateway: StartGateway
) -> None:
    (snippet,) = readme.blocks("yaml webhook")
    file = written.root / "gateway.yaml"
    file.write_text(file.read_text(encoding="utf-8") + snippet, encoding="utf-8")
    assert written.bash("mcp-task-gateway check -c gateway.yaml").returncode == 0

    (plugin,) = yaml.safe_load(snippet)["plugins"]
    plugin |= {"url": f"http://{HOST}:{receiver.server_port}/", "allow_http": True}
    config = {"upstreams": {"demo": {"command": DEMO}}, "plugins": [plugin]}
    url = gateway(config, env={"WEBHOOK_SECRET": SECRET}).url("demo")
    called = written.bash(f"mcp-task-gateway call {url} fail --task --dialect a")
    assert called.returncode == 1, called.stdout
    assert receiver.one.wait(10)
    headers, event = receiver.came[0]
    assert headers["webhook-signature"].startswith("v1,")
    assert (event["type"], event["task"]["tool"], event["task"]["is_error"]) == ("task.ended", "fail", True)
