"""The JSON Schema for editors and the reference for people, both made from the model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.reference import FILE, reference
from gateway.config.schema import DRAFT, json_schema
from gateway.config.shape import sections
from gateway.protocol.errors import ConfigError

EXAMPLE = """\
listen: {host: 127.0.0.1, port: 8080, allowed_origins: ["*"]}
admin: "off"
store: {url: "redis://localhost/0", timeout: 1.5}
secret: 0123456789abcdef
upstreams:
  reports:
    url: http://localhost:9000/mcp
    headers: {Authorization: Bearer x}
    tasks:
      keep_alive: {default: 1h, max: unlimited}
      tools: {"render_*": {mode: required, max_concurrent: unlimited}, "get_*": forbidden}
      methods: {"resources/read": optional}
      inline_within: 0
  files: {command: [sh], env: {A: b}}
limits: {request_bytes: 4MiB, result_bytes: 1048576, rates: {create: "off", get: 5/second}}
plugins: [{name: webhook, url: "http://localhost/", retries: 3}]
"""


def valid(text: str) -> bool:
    return matches(yaml.safe_load(text), json_schema())


def matches(value: Any, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.validate(value, schema, cls=jsonschema.Draft7Validator)
    except jsonschema.ValidationError:
        return False
    return True


def test_the_schema_is_a_draft_07_schema() -> None:
    schema = json_schema()
    assert schema["$schema"] == DRAFT
    jsonschema.Draft7Validator.check_schema(schema)
    json.dumps(schema)


def test_the_schema_takes_what_the_gateway_takes(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(EXAMPLE)
    load(path, {"PATH": os.environ["PATH"]})
    assert valid(EXAMPLE)


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {}",
        "listen: {port: 1}",
        "upstreams: {a: {url: http://b, command: [sh]}}",
        "upstreams: {a: {url: http://b}}\nunknown: 1",
        "upstreams: {a: {url: http://b, tasks: {timeout: 1x}}}",
        "upstreams: {a: {url: http://b, tasks: {timeout: -1}}}",
        "upstreams: {a: {url: http://b, tasks: {default: sometimes}}}",
        "upstreams: {a: {url: http://b, tasks: {tools: {x: sometimes}}}}",
        "upstreams: {a: {url: http://b, tasks: {tools: {x: {mod: optional}}}}}",
        "upstreams: {a: {url: http://b}}\nlimits: {request_bytes: 4 megs}",
        "upstreams: {a: {url: http://b}}\nlimits: {rates: {get: 5/fortnight}}",
        "upstreams: {a: {url: http://b}}\nlisten: {port: 70000}",
        "upstreams: {a: {url: http://b}}\nplugins: [{url: x}]",
    ],
)
def test_the_schema_refuses_what_the_gateway_refuses(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load(path, {})
    assert not valid(text)


def test_the_schema_shows_defaults_as_a_person_writes_them() -> None:
    tasks = json_schema()["definitions"]["TasksConfig"]["properties"]
    assert tasks["timeout"]["default"] == "2h"
    limits = json_schema()["definitions"]["LimitsConfig"]["properties"]
    assert limits["request_bytes"]["default"] == "4MiB"
    assert limits["sessions"]["default"] == 10_000


def test_every_default_of_the_schema_is_valid_under_it() -> None:
    schema = json_schema()

    def check(part: dict[str, Any]) -> None:
        for option in part.get("properties", {}).values():
            if "default" in option:
                whole = {**option, "definitions": schema["definitions"]}
                assert matches(option["default"], whole), option

    check(schema)
    for definition in schema["definitions"].values():
        check(definition)


def test_nothing_stands_beside_a_reference_where_draft_07_would_not_see_it() -> None:
    def walk(part: Any) -> None:
        if isinstance(part, dict):
            assert "$ref" not in part or len(part) == 1  # pyright: ignore[reportUnknownArgumentType]
            for inner in part.values():  # pyright: ignore[reportUnknownVariableType]
                walk(inner)
        if isinstance(part, list):
            for inner in part:  # pyright: ignore[reportUnknownVariableType]
                walk(inner)

    walk(json_schema())


def test_every_option_says_what_it_means() -> None:
    unsaid = [
        f"{place}.{name}"
        for place, model in sections(Config)
        for name, info in model.model_fields.items()
        if not info.description
    ]
    assert unsaid == []


def test_the_reference_names_every_option() -> None:
    text = reference()
    for _, model in sections(Config):
        for name in model.model_fields:
            assert f"| `{name}` |" in text


def test_the_reference_beside_the_code_is_the_one_that_the_code_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == reference(), "run python -m gateway.config.reference"
