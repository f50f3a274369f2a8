"""The files in `deploy/` say what they should, and ask only for metrics that there are."""

from __future__ import annotations

import re
import subprocess

import pytest

from gateway.observe.metrics import Metrics
from tests import deployment
from tests.deployment import DEPLOY
from tests.processes import ROOT

PANELS = [*deployment.panel_queries()]
ALERTS = [*deployment.alert_queries()]


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    metrics = Metrics("0.0.0")
    deployment.count_once(metrics)
    return deployment.exposed(metrics)


@pytest.mark.parametrize(("title", "query", "words"), [*PANELS, *ALERTS])
def test_a_query_names_only_metrics_and_labels_that_the_gateway_has(
    title: str, query: str, words: str, exposed: dict[str, set[str]]
) -> None:
    names = deployment.names_in(query)
    assert names, f"{title} names no metric"
    assert names <= exposed.keys(), title
    known = set[str]().union(*(exposed[name] for name in names))
    assert deployment.labels_in(query) <= known, title
    assert deployment.labels_in_words(words) <= known, title


def test_every_metric_of_the_gateway_is_shown_or_watched(exposed: dict[str, set[str]]) -> None:
    asked = set[str]().union(*(deployment.names_in(query) for _, query, _ in [*PANELS, *ALERTS]))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed if name.startswith("mcp_")}
    assert families <= {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}


def test_the_dashboard_has_each_id_once_and_no_panel_over_another() -> None:
    panels = deployment.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_dashboards_variables_ask_the_metrics_that_there_are(exposed: dict[str, set[str]]) -> None:
    variables = {entry["name"]: entry for entry in deployment.dashboard()["templating"]["list"]}
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["upstream"]["query"]["query"])
    assert found
    assert found[2] in exposed[found[1]]
    used = set(re.findall(r"\$\{?([a-z]+)", (DEPLOY / "grafana/dashboard.json").read_text()))
    assert used == {"datasource", "upstream"}


def test_grafana_finds_the_data_source_and_the_dashboard_where_compose_puts_them() -> None:
    (source,) = deployment.read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    (provider,) = deployment.read_yaml("grafana/provisioning/dashboards/gateway.yaml")["providers"]
    services = deployment.read_yaml("compose.yaml")["services"]
    mounts = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert source["url"] == "http://prometheus:9090"
    assert f"{provider['options']['path']}/dashboard.json" in mounts
    assert "/etc/grafana/provisioning" in mounts


def test_prometheus_scrapes_the_admin_port_of_the_gateway() -> None:
    (job,) = deployment.read_yaml("prometheus/prometheus.yml")["scrape_configs"]
    admin = deployment.read_yaml("gateway.yaml")["admin"]
    assert job["static_configs"] == [{"targets": [f"gateway:{admin['port']}"]}]
    assert admin["host"] == "0.0.0.0"


def test_compose_publishes_on_loopback_only_and_mounts_only_what_is_there() -> None:
    compose = deployment.read_yaml("compose.yaml")
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", []):
            place = volume.split(":")[0]
            assert place in compose["volumes"] or (DEPLOY / place).exists(), volume
    assert "ports" not in compose["services"]["redis"]


def test_compose_takes_every_secret_from_the_environment_and_the_example_names_each() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
    named = set(re.findall(r"^(\w+)=$", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert asked == named
    for name in asked:
        assert f"${{{name}:?" in text


def test_compose_lets_running_tasks_end_before_it_kills_the_gateway() -> None:
    grace = deployment.read_yaml("compose.yaml")["services"]["gateway"]["stop_grace_period"]
    drain = deployment.read_yaml("gateway.yaml")["drain"]
    assert int(grace.removesuffix("s")) > int(drain.removesuffix("s"))


def test_the_image_runs_as_a_number_that_is_not_root_and_holds_no_build_tools() -> None:
    final = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[-1]
    user = re.search(r"^USER (\d+):(\d+)$", final, re.MULTILINE)
    assert user
    assert "0" not in user.groups()
    assert 'ENTRYPOINT ["mcp-task-gateway"]' in final
    assert "/healthz" in final
    assert "\nRUN " not in final


def test_what_the_image_is_built_from_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert f"!{source}" in ignored
                assert (ROOT / source).exists(), source


@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", "prometheus/prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "prometheus/rules.yml"),
        ("test", "rules", "prometheus/rules_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_configuration_and_the_alerts_fire_when_they_should(
    command: tuple[str, ...],
) -> None:
    done = subprocess.run(
        [deployment.program("promtool"), *command],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_that_lets_it_fire() -> None:
    fired = {
        check["alertname"]
        for test in deployment.read_yaml("prometheus/rules_test.yml")["tests"]
        for check in test["alert_rule_test"]
        if check["exp_alerts"]
    }
    assert fired == {name for name, _, _ in ALERTS}
