"""The Kubernetes manifests and the Helm chart: known to Kubernetes, true to the gateway, and the same."""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import __version__
from gateway.front.admin import CHECKS
from tests import charts, deployment
from tests.charts import CHART, Manifest, one
from tests.deployment import DEPLOY
from tests.processes import ROOT

# What the chart asks of an API server, beside the core.
GROUPS = {"apps": "Deployment", "policy": "PodDisruptionBudget", "networking.k8s.io": "NetworkPolicy"}
KEPT = "a-secret-that-is-there-already"
ENV = {"GATEWAY_STORE__URL": "redis://redis:6379/0", "GATEWAY_SECRET": "0123456789abcdef"}
FULL: dict[str, Any] = {
    **charts.ALL,
    "image": {"repository": "images.example/gateway", "tag": "1"},
    "imagePullSecrets": [{"name": "pull"}],
    "config": {"upstreams": {"a": {"url": "http://a.tools:9000/mcp"}}, "workers": 2},
    "secret": {"existingSecret": "mine", "key": "seal"},
    "store": {"existingSecret": "mine", "key": "url"},
    "extraEnv": [{"name": "TOKEN", "value": "x"}],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
    "autoscaling": {"enabled": True, "cpu": 0},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "networkPolicy": {
        "clients": [{"podSelector": {"matchLabels": {"agent": "yes"}}}],
        "egress": [{"ports": [{"port": 6379, "protocol": "TCP"}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}
BARE: dict[str, Any] = {
    **charts.DEMO,
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
VALUES = {"demo": charts.DEMO, "all of it": FULL, "least": BARE}


@pytest.fixture(scope="module")
def chart() -> list[Manifest]:
    return charts.rendered(charts.ALL)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    return charts.kustomized(tmp_path_factory.mktemp("base"), ENV)


@pytest.fixture(params=["chart", "base"])
def found(request: pytest.FixtureRequest, chart: list[Manifest], base: list[Manifest]) -> list[Manifest]:
    return chart if request.param == "chart" else base


def container(found: list[Manifest]) -> dict[str, Any]:
    (it,) = one(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    return it


def config_of(found: list[Manifest]) -> dict[str, Any]:
    return yaml.safe_load(one(found, "ConfigMap")["data"]["gateway.yaml"])


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_knows_all_that_the_chart_makes(values: dict[str, Any], tmp_path: Path) -> None:
    found = charts.rendered(values)
    assert charts.schema_faults(found, "1.37", tmp_path) == []
    for monitor in (m for m in found if m["kind"] == "ServiceMonitor"):
        assert charts.monitor_faults(monitor) == ""


def test_the_oldest_kubernetes_that_the_chart_is_for_knows_all_of_it(tmp_path: Path) -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["kubeVersion"] == ">=1.27.0-0"
    assert charts.schema_faults(charts.rendered(FULL), "1.27", tmp_path) == []


def test_kubernetes_knows_all_that_the_base_makes(base: list[Manifest], tmp_path: Path) -> None:
    assert charts.schema_faults(base, "1.37", tmp_path) == []
    assert charts.monitor_faults(one(base, "ServiceMonitor")) == ""


def test_the_schemas_notice_a_word_that_is_wrong(chart: list[Manifest], tmp_path: Path) -> None:
    wrong = copy.deepcopy(chart)
    container(wrong)["readynessProbe"] = {}
    assert "readynessProbe" in "".join(charts.schema_faults(wrong, "1.37", tmp_path))
    one(wrong, "ServiceMonitor")["spec"]["endpoints"][0]["port"] = 9090
    assert "must be string" in charts.monitor_faults(one(wrong, "ServiceMonitor"))


def test_helm_finds_nothing_to_say_about_the_chart() -> None:
    done = charts.helm("lint", str(CHART), "--strict", values=charts.DEMO)
    assert done.returncode == 0, done.stdout + done.stderr


def _stripped(manifest: Manifest) -> Any:
    """Return a manifest without what helm or kustomize alone writes: labels, hashes, namespace."""
    text = json.dumps(manifest)
    text = re.sub(
        r'"(app.kubernetes.io/(instance|version|managed-by)|helm.sh/chart)": "[^"]*"(, )?', "", text
    )
    text = re.sub(r'"(mcp-task-gateway)-[a-z0-9]{10}"', r'"\1"', text).replace(", }", "}")
    told = json.loads(text)
    told["metadata"].pop("namespace", None)
    if manifest["kind"] == "Deployment":
        told["spec"]["template"]["metadata"].pop("annotations", None)
    return told


def test_the_chart_and_the_base_make_the_same(chart: list[Manifest], base: list[Manifest]) -> None:
    def told(found: list[Manifest]) -> dict[tuple[str, str], Any]:
        kinds = (m for m in found if m["kind"] not in ("Namespace", "ConfigMap", "Secret"))
        return {(m["kind"], m["metadata"]["name"]): _stripped(m) for m in kinds}

    assert told(chart) == told(base)
    assert config_of(chart) == config_of(base)
    assert one(chart, "Secret")["data"].keys() == one(base, "Secret")["data"].keys()


@pytest.mark.parametrize("values", [charts.DEMO, FULL], ids=["demo", "all of it"])
def test_the_gateway_accepts_the_gateway_yaml_of_the_chart(values: dict[str, Any], tmp_path: Path) -> None:
    check(one(charts.rendered(values), "ConfigMap")["data"]["gateway.yaml"], tmp_path)


def test_the_gateway_accepts_the_gateway_yaml_of_the_base(base: list[Manifest], tmp_path: Path) -> None:
    check(one(base, "ConfigMap")["data"]["gateway.yaml"], tmp_path)


def check(text: str, place: Path) -> None:
    file = place / "gateway.yaml"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "check", "-c", str(file)],
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **ENV},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ports_and_probes_are_those_of_the_gateway(found: list[Manifest]) -> None:
    it, config = container(found), config_of(found)
    assert {port["name"]: port["containerPort"] for port in it["ports"]} == {
        "mcp": config["listen"]["port"],
        "admin": config["admin"]["port"],
    }
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        path, _, query = it[name]["httpGet"]["path"].partition("?")
        assert it[name]["httpGet"]["port"] == "admin"
        assert path == ("/readyz" if name == "readinessProbe" else "/healthz")
        assert {part.removeprefix("exclude=") for part in query.split("&") if part} <= CHECKS


def test_a_replica_that_leaves_has_time_to_and_nobody_goes_before_another_is_there(
    found: list[Manifest],
) -> None:
    spec, config = one(found, "Deployment")["spec"], config_of(found)
    needed = charts.seconds(config["drain_delay"]) + charts.seconds(config["drain"])
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= needed + 10
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    readiness = container(found)["readinessProbe"]
    assert readiness["periodSeconds"] * readiness["failureThreshold"] < charts.seconds(
        config["drain_delay"]
    )


def test_the_pod_has_no_rights_that_it_does_not_need(found: list[Manifest]) -> None:
    pod = one(found, "Deployment")["spec"]["template"]["spec"]
    user = re.search(r"^USER (\d+):", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container(found)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_secret_that_the_pod_asks_for_is_there(found: list[Manifest]) -> None:
    secret = one(found, "Secret")
    for variable in container(found)["env"]:
        asked = variable["valueFrom"]["secretKeyRef"]
        assert asked["name"] == secret["metadata"]["name"]
        assert asked["key"] in secret["data"]
        assert variable["name"] in ENV


def test_the_autoscaler_asks_for_a_metric_that_the_adapter_makes_of_one_that_there_is(
    found: list[Manifest],
) -> None:
    pods = [metric["pods"] for metric in one(found, "HorizontalPodAutoscaler")["spec"]["metrics"][:1]]
    (rule,) = deployment.read_yaml("kubernetes/prometheus-adapter.yaml")["rules"]["custom"]
    assert [each["metric"]["name"] for each in pods] == [rule["name"]["as"]]
    statuses = re.search(r'status=~"([^"]*)"', rule["metricsQuery"])
    assert statuses
    reference = (ROOT / "gateway/observe/METRICS.md").read_text()
    asked = deployment.names_in(rule["seriesQuery"]) | deployment.names_in(rule["metricsQuery"])
    assert all(f"`{word}`" in reference for word in [*asked, *statuses[1].split("|")])


def test_selectors_find_the_pods_and_only_operators_reach_the_admin_port(found: list[Manifest]) -> None:
    labels = one(found, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    for service in (one(found, "Service"), one(found, "Service", f"{charts.RELEASE}-admin")):
        assert service["spec"]["selector"].items() <= labels
    for kind in ("PodDisruptionBudget", "Deployment"):
        assert one(found, kind)["spec"]["selector"]["matchLabels"].items() <= labels
    admin = one(found, "Service", f"{charts.RELEASE}-admin")["metadata"]["labels"].items()
    assert one(found, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= admin
    label = one(found, "ServiceMonitor")["spec"]["jobLabel"]
    (job,) = deployment.read_yaml("prometheus/prometheus.yml")["scrape_configs"]
    assert dict(admin)[label] == job["job_name"]
    policy = one(found, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels
    doors = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
    assert doors["mcp"] is None
    assert doors["admin"]


def test_the_notes_name_the_url_of_each_upstream() -> None:
    arguments = ("install", "tools", str(CHART), "--namespace", "here", "--dry-run=client")
    done = charts.helm(*arguments, values={**FULL, "service": {"port": 80}})
    assert done.returncode == 0, done.stderr
    assert "\n  http://tools-mcp-task-gateway.here:80/a/mcp\n" in done.stdout.partition("NOTES:")[2]


def test_the_chart_is_of_this_release() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (image,) = deployment.read_yaml("kubernetes/kustomization.yaml")["images"]
    assert about["appVersion"] == image["newTag"] == __version__


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"repliccas": 3}, "'repliccas' not allowed"),
        ({"config": {"listen": {"port": 1}}}, "'port' not allowed"),
        ({"config": {"upstreams": {}}}, "/config/upstreams"),
        ({"config": {"upstreams": None}}, "missing property 'upstreams'"),
        ({"config": {"secret": "0123456789abcdef"}}, "/config/secret"),
        ({"store": {"url": "memory://"}}, "/store/url"),
        ({"store": {"url": ""}}, "store.url or store.existingSecret is needed"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_I12_values_that_are_wrong_are_refused_by_name(values: dict[str, Any], words: str) -> None:
    done = charts.helm("template", charts.RELEASE, str(CHART), values={**charts.DEMO, **values})
    assert done.returncode != 0
    assert words in done.stderr


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value and (*path, key) != ("config",):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def test_every_value_that_a_template_reads_is_in_values_yaml_and_every_one_is_read() -> None:
    templates = "".join(file.read_text() for file in sorted((CHART / "templates").iterdir()))
    read = {tuple(name.split(".")) for name in re.findall(r"\.Values\.([\w.]+)", templates)}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    leaves = set(_leaves(values))
    for path in read:
        assert any(leaf[: len(path)] == path or path[:1] == ("config",) for leaf in leaves), path
    for leaf in leaves:
        assert any(leaf[: len(path)] == path for path in read), leaf


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(version: str, kinds: list[str]) -> dict[str, Any]:
    resources = [{"name": f"{kind.lower()}s", "namespaced": True, "kind": kind} for kind in kinds]
    known = [{**one, "singularName": "", "verbs": ["get", "list"]} for one in resources]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": known}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """Answer as a cluster where the chart is installed; the path is of a file for KUBECONFIG."""
    secret = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {
            "name": charts.RELEASE,
            "namespace": charts.NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": charts.RELEASE,
                "meta.helm.sh/release-namespace": charts.NAMESPACE,
            },
        },
        "data": {"GATEWAY_SECRET": base64.b64encode(KEPT.encode()).decode()},
    }
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]},
        "/api/v1": _resources("v1", ["Secret", "ConfigMap", "Service", "ServiceAccount"]),
        **{f"/apis/{name}/v1": _resources(f"{name}/v1", [kind]) for name, kind in GROUPS.items()},
        f"/api/v1/namespaces/{charts.NAMESPACE}/secrets/{charts.RELEASE}": secret,
    }

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            body = json.dumps(answer or {**missing, "reason": "NotFound"}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path / "kubeconfig"
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(config))
    yield file
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_upgrade_keeps_the_secret_that_the_first_install_made(cluster: Path) -> None:
    asking = ["template", charts.RELEASE, str(CHART), "--namespace", charts.NAMESPACE, "--dry-run=server"]
    done = charts.helm(
        *asking, "--disable-openapi-validation", env={"KUBECONFIG": str(cluster)}, values=charts.DEMO
    )
    assert done.returncode == 0, done.stderr
    data = one(charts.manifests(done.stdout), "Secret")["data"]
    assert base64.b64decode(data["GATEWAY_SECRET"]).decode() == KEPT


def test_a_first_install_makes_a_secret_that_nobody_guesses(chart: list[Manifest]) -> None:
    made = {one(found, "Secret")["data"]["GATEWAY_SECRET"] for found in (chart, charts.rendered())}
    assert len(made) == 2
    assert all(len(base64.b64decode(secret)) >= 32 for secret in made)
