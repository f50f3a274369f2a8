"""The manifests and the Helm chart of `deploy/`, rendered by the real programs and checked by schemas."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from tests.deployment import DEPLOY
from tests.tools import ToolMissing, node, venv_program
from tests.tools.find import npm_prefix

Manifest: TypeAlias = dict[str, Any]

CHART = DEPLOY / "helm/mcp-task-gateway"
BASE = DEPLOY / "kubernetes"
RELEASE, NAMESPACE = "mcp-task-gateway", "mcp"
DEMO: Manifest = yaml.safe_load((CHART / "ci/demo-values.yaml").read_text())
ALL: Manifest = {**DEMO, "autoscaling": {"enabled": True}, "serviceMonitor": {"enabled": True}}
_MODELS = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor"
_MONITOR = f"""
import {{ServiceMonitor}} from "{_MODELS}";
import {{readFileSync}} from "node:fs";
new ServiceMonitor(JSON.parse(readFileSync(0))).validate();
"""


def run(
    command: list[str],
    *,
    env: Mapping[str, str] | None = None,
    given: str = "",
    place: Path = DEPLOY.parent,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it is given is its standard input."""
    return subprocess.run(
        command,
        cwd=place,
        env={**os.environ, **(env or {})},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def helm(
    *arguments: str, values: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm, with values on its standard input."""
    command = [str(venv_program("deploy", "helm")), *arguments, "--values", "-"]
    # JSON is YAML. No cluster of whoever runs the tests is asked.
    return run(command, env={"KUBECONFIG": os.devnull, **(env or {})}, given=json.dumps(values or {}))


def rendered(values: Mapping[str, Any] = DEMO) -> list[Manifest]:
    """Return what the chart makes of values."""
    done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, values=values)
    assert done.returncode == 0, done.stderr
    return manifests(done.stdout)


def kustomized(place: Path, env: Mapping[str, str]) -> list[Manifest]:
    """Return what `kubectl apply -k` would send, with the secrets of a copy at a place."""
    folder = place / "kubernetes"
    shutil.copytree(BASE, folder, ignore=shutil.ignore_patterns(".env"))
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in env.items()))
    done = run([str(venv_program("deploy", "kubectl")), "kustomize", str(folder)])
    assert done.returncode == 0, done.stderr
    return manifests(done.stdout)


def manifests(text: str) -> list[Manifest]:
    """Return the documents of a YAML stream."""
    return [cast("Manifest", one) for one in yaml.safe_load_all(text) if one]


def one(found: list[Manifest], kind: str, name: str = RELEASE) -> Manifest:
    """Return the only manifest of a kind and a name, with or without the hash of its content."""
    (it,) = (m for m in found if m["kind"] == kind and unhashed(m["metadata"]["name"]) == name)
    return it


def unhashed(name: str) -> str:
    """Return a name without the hash that kustomize adds."""
    return re.sub(r"-[a-z0-9]{10}$", "", name)


def schema_faults(found: list[Manifest], version: str, place: Path) -> list[str]:
    """Return what a release of Kubernetes would not know, or know otherwise."""
    file = place / f"manifests-{version}.yaml"
    # JSON is YAML.
    file.write_text("\n---\n".join(json.dumps(m) for m in found if m["kind"] != "ServiceMonitor"))
    command = [str(venv_program("deploy", "kubernetes-validate")), "--strict", "-k", version, str(file)]
    done = run(command)
    lines = done.stdout.splitlines()
    assert len(lines) == sum(m["kind"] != "ServiceMonitor" for m in found), done.stdout + done.stderr
    return [line for line in lines if not line.startswith("INFO ")]


def monitor_faults(monitor: Manifest) -> str:
    """Return what the Prometheus operator would not take; raise `ToolMissing`."""
    place = npm_prefix("monitoring")
    if not (place / "stamp").is_file():
        raise ToolMissing("the models are missing: run `python -m tests.tools.install monitoring`")
    command = [str(node()), "--input-type=module", "--eval", _MONITOR]
    return run(command, given=json.dumps(monitor), place=place).stderr


def seconds(duration: str) -> int:
    """Return a duration such as `30s`."""
    return int(duration.removesuffix("s"))
