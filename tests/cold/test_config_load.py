"""What a good configuration becomes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.config.load import load, load_inline, warnings
from gateway.config.model import Config
from gateway.protocol.errors import ConfigError

Write = Callable[[str], Path]
ENV = {"PATH": os.environ["PATH"]}
SECRET = "hunter2-hunter2-hunter2"

DESIGN = """\
listen: {host: 127.0.0.1, port: 8080}
admin:  {host: 127.0.0.1, port: 9090}
store:  {url: "memory://"}
upstreams:
  reports:
    url: http://localhost:9000/mcp
    tasks:
      default: optional
      keep_alive: {default: 1h, max: 24h}
      poll_interval: 2s
      timeout: 2h
      tools:
        "render_*": {mode: required, keep_alive: {max: 7d}, max_concurrent: 4}
        "get_*":    {mode: forbidden}
      methods: {"resources/read": optional}
      inline_within: 2s
  everything:
    command: [sh, -c, "exit 0"]
limits: {tasks_per_scope: 100, request_bytes: 4MiB, result_bytes: 16MiB}
plugins: []
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "gateway.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


def test_the_example_of_the_design_is_read_as_it_stands(write: Write) -> None:
    config = load(write(DESIGN), ENV)
    reports = config.upstreams["reports"]
    assert reports.url is not None
    assert reports.url.get_secret_value() == "http://localhost:9000/mcp"
    assert (config.listen.host, config.listen.port) == ("127.0.0.1", 8080)
    assert config.admin is not None
    assert config.admin.port == 9090
    assert reports.tasks.keep_alive.max == 86_400_000
    assert reports.tasks.tools["render_*"].max_concurrent == 4
    assert list(reports.tasks.tools) == ["render_*", "get_*"]
    assert reports.tasks.methods["resources/read"].mode == "optional"
    assert reports.tasks.inline_within == 2_000
    assert config.upstreams["everything"].command == ("sh", "-c", "exit 0")
    assert config.limits.request_bytes == 4_194_304
    assert config.plugins == ()


def test_what_is_not_written_has_its_default(write: Write) -> None:
    config = load(write("upstreams: {a: {url: http://localhost:1/mcp}}"), ENV)
    assert config.store.url.get_secret_value() == "memory://"
    assert (config.listen.host, config.listen.port) == ("127.0.0.1", 8080)
    assert (config.store.prefix, config.store.timeout) == ("mtg:", 2_000)
    assert (config.drain, config.lease) == (30_000, 15_000)
    upstream = config.upstreams["a"]
    assert (upstream.transport, upstream.scope, upstream.verify_tls) == ("auto", "principal", True)
    assert (upstream.connect_timeout, upstream.start_timeout, upstream.idle) == (10_000, 30_000, 3_600_000)
    tasks = upstream.tasks
    assert (tasks.default, tasks.poll_interval, tasks.timeout) == ("optional", 2_000, 7_200_000)
    assert (tasks.max_concurrent, tasks.on_loss, tasks.refuse_plain) == (None, "fail", False)
    limits = config.limits
    assert (limits.stored_tasks_per_scope, limits.log_entries, limits.sessions) == (1_000, 1_000, 10_000)
    assert (limits.stream_queue_bytes, limits.pending_requests, limits.task_id_bytes) == (
        1_048_576,
        64,
        1024,
    )
    rates = limits.rates
    assert (rates.create, rates.get, rates.result, rates.list) == (
        "600/minute",
        "6000/minute",
        "3000/minute",
        "600/minute",
    )


def test_a_section_that_is_left_empty_has_its_defaults(write: Write) -> None:
    config = load(
        write("limits:\nstore:\nadmin:\nupstreams: {a: {url: http://b, tasks: , headers: }}"), ENV
    )
    assert config.limits.tasks_per_scope == 100
    assert config.admin is not None


@pytest.mark.parametrize("written", ["off", "false", '"off"'])
def test_the_admin_port_can_be_off(write: Write, written: str) -> None:
    config = load(write(f"admin: {written}\nupstreams: {{a: {{url: http://b}}}}"), ENV)
    assert config.admin is None


def test_unlimited_is_none(write: Write) -> None:
    text = """\
upstreams:
  a:
    url: http://b
    tasks: {keep_alive: {max: unlimited}, max_concurrent: unlimited, tools: {x: {keep_alive: {max: null}}}}
limits: {rates: {create: off}}
"""
    config = load(write(text), ENV)
    tasks = config.upstreams["a"].tasks
    assert tasks.keep_alive.max is None
    assert tasks.tools["x"].keep_alive is not None
    assert tasks.tools["x"].keep_alive.max is None
    assert config.limits.rates.create is None


def test_names_are_read_as_written_even_where_yaml_means_a_boolean(write: Write) -> None:
    config = load(write("upstreams: {no: {url: http://b}, 12: {url: http://c}}"), ENV)
    assert list(config.upstreams) == ["no", "12"]


def test_aliases_and_merge_keys_work(write: Write) -> None:
    text = """\
upstreams:
  a: &a
    url: http://a
    tasks: {timeout: 5s, poll_interval: 1s}
  b:
    <<: *a
    url: http://b
"""
    upstream = load(write(text), ENV).upstreams["b"]
    assert upstream.url is not None
    assert upstream.url.get_secret_value() == "http://b"
    assert upstream.tasks.timeout == 5_000


def test_the_environment_overrides_the_file(write: Write) -> None:
    env = {
        **ENV,
        "GATEWAY_STORE__URL": "redis://store:6379/0",
        "GATEWAY_LISTEN__PORT": "9999",
        "GATEWAY_LISTEN__ALLOWED_ORIGINS": "[https://a.example]",
        "GATEWAY_ADMIN": "off",
        "GATEWAY_DRAIN": "5s",
        "GATEWAY_UPSTREAMS__REPORTS__TASKS__TIMEOUT": "7s",
        "GATEWAY_UPSTREAMS__REPORTS__TASKS__TOOLS__GET_USER__MODE": "optional",
        "GATEWAY_UPSTREAMS__EVERYTHING__ENV__Api_Key": "k",
        "GATEWAY_UPSTREAMS__NEW__COMMAND": "[sh]",
        "GATEWAY_LIMITS__RATES__GET": "off",
    }
    text = DESIGN.replace('"get_*":', "Get-User:")
    config = load(write(text), env)
    assert config.store.url.get_secret_value() == "redis://store:6379/0"
    assert config.listen.port == 9999
    assert config.listen.allowed_origins == ("https://a.example",)
    assert config.admin is None
    assert config.drain == 5_000
    assert config.upstreams["reports"].tasks.timeout == 7_000
    assert config.upstreams["reports"].tasks.tools["Get-User"].mode == "optional"
    assert config.upstreams["everything"].env["Api_Key"].get_secret_value() == "k"
    assert config.upstreams["new"].command == ("sh",)
    assert config.limits.rates.get is None


def test_names_of_upstreams_are_found_whatever_their_case(write: Write) -> None:
    text = "upstreams: {My-Reports.v2: {url: http://b}}"
    config = load(write(text), {**ENV, "GATEWAY_UPSTREAMS__MY_REPORTS_V2__TASKS__TIMEOUT": "7s"})
    assert list(config.upstreams) == ["My-Reports.v2"]
    assert config.upstreams["My-Reports.v2"].tasks.timeout == 7_000


def test_variables_that_an_orchestrator_sets_for_a_service_called_gateway_are_not_ours(
    write: Write,
) -> None:
    env = {
        **ENV,
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_PORT_80_TCP": "tcp://10.0.0.1:80",
    }
    assert load(write(DESIGN), env).listen.port == 8080


def test_a_configuration_can_come_from_the_environment_alone() -> None:
    config = load(None, {**ENV, "GATEWAY_UPSTREAMS__REPORTS__URL": "http://localhost:9000/mcp"})
    assert list(config.upstreams) == ["reports"]


def test_variables_are_put_in_where_secrets_stand(write: Write) -> None:
    text = """\
secret: ${SEAL}
store: {url: "redis://:${PASS}@store/0", password: "${PASS}"}
upstreams:
  a:
    url: http://${HOST}/mcp
    headers: {Authorization: "Bearer ${TOKEN}", X-Literal: "$${TOKEN}", X-Dollar: "$5"}
  b: {command: [sh, "${TOKEN}"], env: {KEY: "${TOKEN}"}}
plugins: [{name: webhook, secret: "${TOKEN}", nested: {list: ["${TOKEN}"]}}]
"""
    env = {**ENV, "SEAL": SECRET, "PASS": "pw", "HOST": "up.example", "TOKEN": "${PASS}"}
    config = load(write(text), env)
    a, b = config.upstreams["a"], config.upstreams["b"]
    assert config.secret is not None
    assert config.secret.get_secret_value() == SECRET
    assert config.store.url.get_secret_value() == "redis://:pw@store/0"
    assert a.url is not None
    assert a.url.get_secret_value() == "http://up.example/mcp"
    # What a variable holds is not looked at again.
    assert a.headers["Authorization"].get_secret_value() == "Bearer ${PASS}"
    assert a.headers["X-Literal"].get_secret_value() == "${TOKEN}"
    assert a.headers["X-Dollar"].get_secret_value() == "$5"
    assert b.env["KEY"].get_secret_value() == "${PASS}"
    assert b.command == ("sh", "${TOKEN}")
    assert config.plugins[0].options == {"secret": "${PASS}", "nested": {"list": ["${PASS}"]}}


def test_an_overridden_value_is_taken_as_it_is_and_needs_no_variable_of_the_file(write: Write) -> None:
    text = "store: {password: '${UNSET}', url: redis://a}\nupstreams: {a: {url: http://b}}"
    config = load(write(text), {**ENV, "GATEWAY_STORE__PASSWORD": "a${b}c"})
    assert config.store.password is not None
    assert config.store.password.get_secret_value() == "a${b}c"


def test_secrets_come_from_files_beside_the_configuration(write: Write, tmp_path: Path) -> None:
    (tmp_path / "seal").write_text(SECRET + "\n")
    (tmp_path / "pass").write_text("pw\n")
    (tmp_path / "headers").write_text("# ours\nAuthorization: Bearer x\n\nX-Team: blue\n")
    text = """\
secret_file: seal
store: {url: redis://a, password_file: pass}
upstreams: {a: {url: http://b, headers: {X-One: "1"}, headers_file: headers}}
"""
    config = load(write(text), ENV)
    assert config.secret is not None
    assert config.secret.get_secret_value() == SECRET
    assert config.store.password is not None
    assert config.store.password.get_secret_value() == "pw"
    headers = {name: value.get_secret_value() for name, value in config.upstreams["a"].headers.items()}
    assert headers == {"X-One": "1", "Authorization": "Bearer x", "X-Team": "blue"}


def test_a_secret_of_the_environment_wins_over_a_file_of_the_configuration(
    write: Write, tmp_path: Path
) -> None:
    text = "secret_file: missing\nstore: {url: redis://a, password: old}\nupstreams: {a: {url: http://b}}"
    (tmp_path / "pass").write_text("new")
    env = {**ENV, "GATEWAY_SECRET": SECRET, "GATEWAY_STORE__PASSWORD_FILE": str(tmp_path / "pass")}
    config = load(write(text), env)
    assert config.secret is not None
    assert config.secret.get_secret_value() == SECRET
    assert config.store.password is not None
    assert config.store.password.get_secret_value() == "new"


def test_no_secret_is_in_what_a_configuration_prints(write: Write) -> None:
    text = f"""\
secret: {SECRET}
store: {{url: "redis://u:{SECRET}@a", password: {SECRET}}}
upstreams:
  a: {{url: "http://b/?key={SECRET}", headers: {{X-Key: {SECRET}}}}}
  c: {{command: [sh], env: {{KEY: {SECRET}}}}}
plugins: [{{name: webhook, secret: {SECRET}}}]
"""
    config = load(write(text), ENV)
    assert SECRET not in repr(config)
    assert SECRET not in str(config)
    assert SECRET not in "".join(warnings(config, ENV))


def test_no_secret_is_in_a_mistake(write: Write) -> None:
    text = f"""\
secret: [{SECRET}]
store: {{url: "nosuch://u:{SECRET}@a", password: {{a: {SECRET}}}}}
upstreams:
  a: {{url: "http://u:{SECRET}@b", headers: {{X-Key: ["{SECRET}"], X-Line: "{SECRET}\\n"}}}}
  b: {{url: "ftp://{SECRET}", env: {SECRET}, headers: {SECRET}}}
  c: {{url: {{a: {SECRET}}}}}
plugins: [{{name: [{SECRET}]}}]
"""
    with pytest.raises(ConfigError) as caught:
        load(write(text), ENV)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value).splitlines()) >= 9


def test_a_configuration_cannot_be_changed(write: Write) -> None:
    config = load(write(DESIGN), ENV)
    with pytest.raises(ValidationError):
        config.listen.port = 1


def test_one_command_can_be_wrapped_without_a_file() -> None:
    config = load_inline(["sh", "-c", "cat"], ENV)
    assert config.upstreams["wrapped"].command == ("sh", "-c", "cat")
    assert config.admin is None
    assert config.store.url.get_secret_value() == "memory://"


def test_a_wrapped_command_hears_the_environment() -> None:
    env = {**ENV, "GATEWAY_UPSTREAMS__WRAPPED__TASKS__DEFAULT": "required", "GATEWAY_ADMIN__PORT": "0"}
    config = load_inline(["sh"], env)
    assert config.upstreams["wrapped"].tasks.default == "required"
    assert config.admin is not None
    assert config.admin.port == 0


def test_a_wrapped_command_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        load_inline(["no-such-program"], ENV)
    assert str(caught.value) == (
        'configuration: upstreams.wrapped.command: "no-such-program" is not found on PATH; '
        "install it or write its full path"
    )


def test_what_may_not_be_meant_is_a_warning(write: Write) -> None:
    text = """\
listen: {host: 0.0.0.0}
admin: {host: "::"}
identity: {header: X-User}
upstreams: {a: {url: https://b, verify_tls: false}}
"""
    env = {**ENV, "GATEWAY_STORE_URL": "redis://a"}
    assert warnings(load(write(text), env), env) == [
        "listen.host 0.0.0.0 can be reached from other machines; the gateway checks no credentials "
        "of its own",
        "admin.host :: can be reached from other machines; metrics are open to all",
        "upstreams.a.verify_tls is off; anybody in between can read and change everything",
        "identity.header X-User is trusted; the proxy in front must set it",
        "GATEWAY_STORE_URL is not used; the override of store.url is GATEWAY_STORE__URL",
    ]


def test_the_example_of_the_design_warns_of_nothing(write: Write) -> None:
    assert warnings(load(write(DESIGN), ENV), ENV) == []


def test_the_defaults_are_a_valid_model() -> None:
    assert Config.model_validate({}) == Config()
