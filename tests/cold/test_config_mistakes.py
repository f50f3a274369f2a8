"""Each mistake is told with its line and what would be right, and all of them at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.protocol.errors import ConfigError

ENV = {"PATH": os.environ["PATH"]}
GOOD = "upstreams: {a: {url: http://b}}"


def mistakes(folder: Path, text: str | bytes, env: dict[str, str] | None = None) -> list[str]:
    """Return the lines of the error, with the folder's name taken away."""
    path = folder / "gateway.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load(path, {**ENV, **(env or {})})
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def upstream(body: str) -> str:
    return f"upstreams:\n  reports:\n    url: http://localhost:9000/mcp\n{body}"


def tasks(body: str) -> str:
    return upstream(f"    tasks:\n{body}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            tasks("      keep_alive:\n        max: 1x\n"),
            'gateway.yaml:6: upstreams.reports.tasks.keep_alive.max: "1x" is not a duration; '
            "write it like 500ms, 2s, 1h or 7d, or unlimited",
        ),
        (
            tasks("      keep_alive: 1h\n"),
            'gateway.yaml:5: upstreams.reports.tasks.keep_alive: "1h" must be a mapping; '
            "write it like {option: value}",
        ),
        (
            tasks("      default: optionl\n"),
            'gateway.yaml:5: upstreams.reports.tasks.default: "optionl" is not one of forbidden, optional, '
            'required; did you mean "optional"?',
        ),
        (
            tasks("      tools:\n        'render_*': sometimes\n"),
            'gateway.yaml:6: upstreams.reports.tasks.tools."render_*".mode: "sometimes" is not one of '
            "forbidden, optional, required",
        ),
        (
            tasks("      tools:\n        'render_*': {max_concurrent: 0}\n"),
            'gateway.yaml:6: upstreams.reports.tasks.tools."render_*".max_concurrent: 0 is out of range; '
            "write a number from 1 to 1000000000, or unlimited",
        ),
        (
            tasks("      max_concurrent_per_scope: many\n"),
            'gateway.yaml:5: upstreams.reports.tasks.max_concurrent_per_scope: "many" is not a whole '
            "number; write one from 1 to 1000000000, or unlimited",
        ),
        (
            tasks("      keep_alive: {default: 48h, max: 24h}\n"),
            "gateway.yaml:5: upstreams.reports.tasks.keep_alive.default: 2d is longer than the "
            "keep_alive.max, 1d",
        ),
        (
            tasks("      keep_alive: {max: 1d}\n      tools:\n        a: {keep_alive: {default: 2d}}\n"),
            "gateway.yaml:7: upstreams.reports.tasks.tools.a.keep_alive.default: 2d is longer than the "
            "keep_alive.max that holds here, 1d",
        ),
        (
            tasks("      tools:\n        '*': optional\n        'get_*': forbidden\n"),
            'gateway.yaml:7: upstreams.reports.tasks.tools."get_*": can never match: "*" stands before it '
            "and takes all of it; move it up",
        ),
        (
            tasks("      tools:\n        ' get_*': optional\n"),
            'gateway.yaml:6: upstreams.reports.tasks.tools." get_*": " get_*" begins or ends with a space; '
            "no tool's name does",
        ),
        (
            tasks("      tools: {'': optional}\n"),
            'gateway.yaml:5: upstreams.reports.tasks.tools."": an empty pattern matches no tool',
        ),
        (
            tasks("      methods: {tools/call: optional}\n"),
            'gateway.yaml:5: upstreams.reports.tasks.methods."tools/call": tools are governed by '
            'default and tools',
        ),
        (
            tasks("      methods: {tasks/get: optional}\n"),
            'gateway.yaml:5: upstreams.reports.tasks.methods."tasks/get": tasks/get cannot run as a task',
        ),
        (
            tasks("      methods: {'resources/*': optional}\n"),
            'gateway.yaml:5: upstreams.reports.tasks.methods."resources/*": methods are named in full; '
            "patterns are for tools",
        ),
        (
            upstream("    keepAlive: 1h\n"),
            "gateway.yaml:4: upstreams.reports.keepAlive: there is no such option here; "
            "there is upstreams.*.tasks.keep_alive",
        ),
        (
            upstream("    timeout: 1h\n"),
            "gateway.yaml:4: upstreams.reports.timeout: there is no such option here; "
            "there is upstreams.*.tasks.timeout",
        ),
        (
            upstream("    vrify_tls: true\n"),
            'gateway.yaml:4: upstreams.reports.vrify_tls: there is no such option; did you mean '
            '"verify_tls"?',
        ),
        (
            upstream("    transport: stdio\n"),
            'gateway.yaml:4: upstreams.reports.transport: "stdio" is not one of auto, streamable-http, sse',
        ),
        (
            upstream("    verify_tls: perhaps\n"),
            "gateway.yaml:4: upstreams.reports.verify_tls: must be true or false",
        ),
        (
            upstream("    headers: {Authorization: 5}\n"),
            'gateway.yaml:4: upstreams.reports.headers.Authorization: must be text; put it in quotes: '
            '"..."',
        ),
        (
            upstream("    headers: {'bad name': x}\n"),
            'gateway.yaml:4: upstreams.reports.headers."bad name": "bad name" is not the name of a header',
        ),
        (
            upstream("    headers: {Host: x}\n"),
            'gateway.yaml:4: upstreams.reports.headers.Host: the header "Host" is set by the gateway '
            'itself',
        ),
        (
            upstream('    headers: {X-A: "a\\r\\nX-B: b"}\n'),
            "gateway.yaml:4: upstreams.reports.headers.X-A: the value of a header cannot hold line "
            "breaks or "
            "control characters",
        ),
        (
            upstream("    cwd: /\n"),
            "gateway.yaml:4: upstreams.reports.cwd: goes with command; this upstream has url",
        ),
        (
            upstream("    command: [sh]\n"),
            "gateway.yaml:2: upstreams.reports: give url or command, not both",
        ),
        (
            upstream("  reports:\n    command: [sh]\n"),
            "gateway.yaml:4: upstreams.reports: two upstreams of one name: lines 2 and 4; "
            "take one away or rename it",
        ),
        (
            upstream("    ca_file: /no/such.pem\n"),
            'gateway.yaml:4: upstreams.reports.ca_file: "/no/such.pem" cannot be read: No such file or '
            'directory',
        ),
        (
            upstream("    headers_file: /no/such\n"),
            "gateway.yaml:4: upstreams.reports.headers_file: the file cannot be read: No such file or "
            "directory",
        ),
        (
            upstream("    idle: -1s\n"),
            'gateway.yaml:4: upstreams.reports.idle: "-1s" is negative; '
            "a duration is written like 500ms, 2s, 1h or 7d",
        ),
        (
            "upstreams: {a: {}}",
            "gateway.yaml:1: upstreams.a: give url or command",
        ),
        (
            "upstreams: {a: {command: []}}",
            "gateway.yaml:1: upstreams.a.command: is empty; write it like [npx, -y, some-server]",
        ),
        (
            "upstreams: {a: {command: [sh, 8080]}}",
            'gateway.yaml:1: upstreams.a.command[1]: must be text; put it in quotes: "..."',
        ),
        (
            "upstreams: {a: {command: npx server}}",
            "gateway.yaml:1: upstreams.a.command: must be a list; write it like [a, b]",
        ),
        (
            "upstreams:\n  a:\n    command: [no-such-program]",
            'gateway.yaml:3: upstreams.a.command: "no-such-program" is not found on PATH; '
            "install it or write its full path",
        ),
        (
            "upstreams: {a: {command: [/no/such/program]}}",
            'gateway.yaml:1: upstreams.a.command: there is no file "/no/such/program"',
        ),
        (
            "upstreams: {a: {command: [sh], cwd: /no/such}}",
            'gateway.yaml:1: upstreams.a.cwd: "/no/such" is not a folder',
        ),
        (
            "upstreams: {a: {command: [sh], headers: {X: y}}}",
            "gateway.yaml:1: upstreams.a.headers: goes with url; this upstream has command",
        ),
        (
            "upstreams: {a: {url: ftp://b}}",
            "gateway.yaml:1: upstreams.a.url: must begin with http:// or https:// and name a host, "
            "like http://localhost:9000/mcp",
        ),
        (
            "upstreams: {a: {url: 'http://b:99999'}}",
            "gateway.yaml:1: upstreams.a.url: the URL is malformed; check its host and port",
        ),
        (
            "upstreams: {a: {url: 'http://u:p@b'}}",
            "gateway.yaml:1: upstreams.a.url: credentials do not belong into the URL; "
            "use headers: {Authorization: ...}",
        ),
        (
            "upstreams: {a: {url: 'http://b/ c'}}",
            "gateway.yaml:1: upstreams.a.url: the URL holds spaces or control characters",
        ),
        (
            "upstreams: {a: http://b}",
            'gateway.yaml:1: upstreams.a: "http://b" must be a mapping; write it like {option: value}',
        ),
        (
            "upstreams: {bad name: {url: http://b}}",
            "gateway.yaml:1: upstreams.\"bad name\": \"bad name\" cannot name an upstream; use "
            "letters, digits, "
            "'.', '_' and '-', up to 63 characters, the first a letter or digit",
        ),
        (
            "upstreams: {Metrics: {url: http://b}}",
            'gateway.yaml:1: upstreams.Metrics: "Metrics" cannot name an upstream: '
            "the gateway uses that path itself",
        ),
        (
            "listen: {port: 8080}",
            "gateway.yaml:1: upstreams: there is none; name at least one MCP server with url or command",
        ),
        ("", "gateway.yaml:1: upstreams: there is none; name at least one MCP server with url or command"),
        (
            f"{GOOD}\nlisten: {{port: 7000}}\nadmin: {{port: 7000}}",
            "gateway.yaml:3: admin.port: 7000 is also listen.port; give each a port of its own",
        ),
        (
            f"{GOOD}\nlisten: {{port: 70000}}",
            "gateway.yaml:2: listen.port: 70000 is out of range; write a number from 0 to 65535",
        ),
        (
            f"{GOOD}\nstore: {{url: 'mysql://a'}}",
            "gateway.yaml:2: store.url: the store must be one of memory://, redis://, rediss://, "
            "redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, unix://",
        ),
        (
            f"{GOOD}\nstore: {{url: 'redis://'}}",
            "gateway.yaml:2: store.url: the host is missing; write it like redis://localhost:6379",
        ),
        (
            f"{GOOD}\nstore: {{url: 'redis+sentinel:///mymaster'}}",
            "gateway.yaml:2: store.url: the host is missing; "
            "write it like redis+sentinel://localhost:26379/mymaster",
        ),
        (
            f"{GOOD}\nworkers: all",
            'gateway.yaml:2: workers: "all" is not a whole number; write one from 0 to 256, or auto',
        ),
        (
            f"{GOOD}\nstore: {{url: 'redis+sentinel://:p@a:1,b:2'}}",
            "gateway.yaml:2: store.url: the service is missing; "
            "write it like redis+sentinel://localhost:26379/mymaster",
        ),
        (
            f"{GOOD}\nstore: {{url: 'redis+cluster://a:1,b:x'}}",
            "gateway.yaml:2: store.url: the URL is malformed; check its host and port",
        ),
        (
            f"{GOOD}\nstore: {{url: 'redis+cluster://a:1,b:2/1'}}",
            "gateway.yaml:2: store.url: a cluster has no databases; leave the path away",
        ),
        (
            f"{GOOD}\nsecret: short",
            "gateway.yaml:2: secret: the secret is too short; use at least 16 random characters",
        ),
        (
            f"{GOOD}\nsecret: ${{NOT_SET}}",
            "gateway.yaml:2: secret: the environment variable NOT_SET is not set",
        ),
        (
            f"{GOOD}\nsecret: ${{not a name}}",
            'gateway.yaml:2: secret: "${not a name}" does not name a variable',
        ),
        (
            f"{GOOD}\nsecret: 0123456789abcdefg\nsecret_file: x",
            "gateway.yaml:3: secret_file: give secret or secret_file, not both",
        ),
        (
            f"{GOOD}\nlimits: {{request_bytes: 4 megs}}",
            'gateway.yaml:2: limits.request_bytes: "4 megs" is not a size; '
            "write it like 512KiB, 4MiB or 16MB",
        ),
        (
            f"{GOOD}\nlimits:\n  rates:\n    create: 5/fortnight",
            'gateway.yaml:4: limits.rates.create: "5/fortnight" is not a rate; write it like 10/second, '
            "600/minute, 1000/hour or 5000/day, or off",
        ),
        (f"{GOOD}\nplugins: [{{url: x}}]", "gateway.yaml:2: plugins[0].name: is missing"),
        (f"{GOOD}\nplugins: webhook", "gateway.yaml:2: plugins: must be a list; write it like [a, b]"),
        (
            f"{GOOD}\nupstream: {{}}",
            'gateway.yaml:2: upstream: there is no such option; did you mean "upstreams"?',
        ),
        (
            f"{GOOD}\nlistne: {{}}",
            'gateway.yaml:2: listne: there is no such option; did you mean "listen"?',
        ),
        (
            f"{GOOD}\nlog: {{level: loud}}",
            'gateway.yaml:2: log.level: "loud" is not one of debug, info, warning, error',
        ),
        (f"{GOOD}\ndrain: 1s\ndrain: 2s", "gateway.yaml:3: drain: this key stands twice: lines 2 and 3; "
         "take one away or rename it"),
        (f"{GOOD}\n? [a, b]\n: c", "gateway.yaml:2: a key must be a word"),
        (
            f"{GOOD}\nsecret: !!int abc",
            "gateway.yaml:2: secret: YAML cannot read this as int; put it in quotes",
        ),
        (
            f"{GOOD}\nsecret: !!python/object/apply:os.system [x]",
            "gateway.yaml:2: secret: must be text; put it in quotes: \"...\"",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_where_and_what_would_be_right(
    tmp_path: Path, text: str, line: str
) -> None:
    assert mistakes(tmp_path, text) == [line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1", "gateway.yaml:1: is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1", "gateway.yaml:2: is not YAML: a tab cannot indent YAML; use spaces"),
        (
            "a: 1\n---\nb: 2",
            "gateway.yaml:2: is not YAML: there must be one YAML document, here a second one begins",
        ),
        ("- a", "gateway.yaml:1: must be a mapping; write it like listen: {...}"),
        (b"a: 1\nb: \xff", "gateway.yaml:2: is not UTF-8; save the file as UTF-8"),
        ("a: \x00", "gateway.yaml:1: holds control characters, which YAML does not allow"),
        ("[" * 5000, "gateway.yaml:1: is nested too deeply"),
        ("a: *b", "gateway.yaml:1: is not YAML: found undefined alias 'b'"),
        (
            "a: &a\n  b: *a",
            "gateway.yaml:1: is not YAML: too many or too deeply nested values, or an alias to itself",
        ),
        ("a" * (1 << 20) + "aa", "gateway.yaml: is larger than 1MiB; a configuration is not"),
    ],
)
def test_a_file_that_is_not_yaml_is_told_so(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert mistakes(tmp_path, text) == [line]


def test_I10_aliases_cannot_grow_without_bound(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (line,) = mistakes(tmp_path, "\n".join(levels))
    assert line.endswith("is not YAML: too many or too deeply nested values, or an alias to itself")


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml", ENV)
    assert str(caught.value) == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
listen: {prot: 1, port: 9090}
store: {url: "mysql://a"}
upstreams:
  a:
    url: http://b
    tasks:
      timeout: soon
      keep_alive: {default: 2d, max: 1d}
  b: {command: [no-such-program]}
limits: {sessions: many}
"""
    assert mistakes(tmp_path, text) == [
        'gateway.yaml:1: listen.prot: there is no such option; did you mean "port"?',
        "gateway.yaml:1: admin.port: 9090 is also listen.port; give each a port of its own",
        "gateway.yaml:2: store.url: the store must be one of memory://, redis://, rediss://, "
        "redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, unix://",
        'gateway.yaml:7: upstreams.a.tasks.timeout: "soon" is not a duration; write it like 500ms, '
        "2s, 1h or 7d",
        "gateway.yaml:8: upstreams.a.tasks.keep_alive.default: 2d is longer than the keep_alive.max, 1d",
        'gateway.yaml:9: upstreams.b.command: "no-such-program" is not found on PATH; '
        "install it or write its full path",
        'gateway.yaml:10: limits.sessions: "many" is not a whole number; write one from 1 to 1000000000',
    ]


def test_a_wrong_value_does_not_cause_mistakes_that_are_not_there(tmp_path: Path) -> None:
    text = tasks("      keep_alive: {default: 2d, max: 1x}\n")
    assert len(mistakes(tmp_path, text)) == 1
    assert len(mistakes(tmp_path, "upstreams: {a: {url: [x]}}")) == 1
    assert len(mistakes(tmp_path, "upstreams: [a]")) == 1


@pytest.mark.parametrize(
    ("env", "line"),
    [
        (
            {"GATEWAY_STORE__URI": "x"},
            'GATEWAY_STORE__URI: there is no option store.uri; did you mean "url"?',
        ),
        (
            {"GATEWAY_STOER__URL": "x"},
            'GATEWAY_STOER__URL: there is no option stoer.url; did you mean "store"?',
        ),
        (
            {"GATEWAY_LEASE": "1q"},
            'GATEWAY_LEASE: lease: "1q" is not a duration; write it like 500ms, 2s, 1h or 7d',
        ),
        (
            {"GATEWAY_UPSTREAMS__A__TASKS__TIMEOUT": "never"},
            'GATEWAY_UPSTREAMS__A__TASKS__TIMEOUT: upstreams.a.tasks.timeout: "never" is not a duration; '
            "write it like 500ms, 2s, 1h or 7d",
        ),
        (
            {"GATEWAY_LISTEN__ALLOWED_ORIGINS": "[a"},
            "GATEWAY_LISTEN__ALLOWED_ORIGINS: listen.allowed_origins: is not YAML; write it like [a, "
            "b] or {a: b}",
        ),
        (
            {"GATEWAY_LISTEN__ALLOWED_ORIGINS": "a"},
            "GATEWAY_LISTEN__ALLOWED_ORIGINS: listen.allowed_origins: must be a list; write it like [a, b]",
        ),
        (
            {"GATEWAY_PLUGINS__0__NAME": "x"},
            "GATEWAY_PLUGINS__0__NAME: there is no option plugins.0.name",
        ),
    ],
)
def test_a_mistake_of_the_environment_names_the_variable(
    tmp_path: Path, env: dict[str, str], line: str
) -> None:
    assert mistakes(tmp_path, GOOD, env) == [line]


def test_nothing_can_be_set_below_a_plain_value(tmp_path: Path) -> None:
    assert mistakes(tmp_path, f"{GOOD}\nadmin: off", {"GATEWAY_ADMIN__PORT": "1"}) == [
        "GATEWAY_ADMIN__PORT: admin.port: admin is false; nothing below it can be set"
    ]


def test_a_program_that_may_not_be_executed_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("x")
    assert mistakes(tmp_path, "upstreams: {a: {command: [./server], cwd: .}}") == [
        'gateway.yaml:1: upstreams.a.command: "server" may not be executed; chmod +x it'
    ]


def test_the_path_of_the_child_decides_whether_a_program_is_found(tmp_path: Path) -> None:
    text = "upstreams: {a: {command: [sh], env: {PATH: /no/such}}}"
    assert mistakes(tmp_path, text) == [
        'gateway.yaml:1: upstreams.a.command: "sh" is not found on PATH; install it or write its full path'
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nonsense", 'line 1 of the file is not a header; write it like "Name: value"'),
        ("\nX-A: 2", "line 2 of the file names a header that is already there"),
    ],
)
def test_a_wrong_line_of_a_headers_file_is_named(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "headers").write_text(content)
    text = "upstreams: {a: {url: http://b, headers: {x-a: '1'}, headers_file: headers}}"
    assert mistakes(tmp_path, text) == [f"gateway.yaml:1: upstreams.a.headers_file: {words}"]


def test_a_certificate_file_without_certificates_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    assert mistakes(tmp_path, "upstreams: {a: {url: https://b, ca_file: ca.pem}}") == [
        'gateway.yaml:1: upstreams.a.ca_file: "ca.pem" does not hold certificates in PEM form'
    ]
