"""What of a new configuration needs a start, and which upstreams it is about."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.changes import LIVE, changed_upstreams, needs_start
from gateway.config.model import Config

BASE: dict[str, Any] = {
    "store": {"url": "redis://localhost"},
    "secret": "0123456789abcdef",
    "upstreams": {"one": {"url": "http://localhost:1/mcp"}, "two": {"command": ["two"]}},
}


def config(**more: Any) -> Config:
    return Config.model_validate({**BASE, **more})


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, []),
        ({"listen": {"port": 1}}, ["listen.port"]),
        ({"listen": {"allowed_origins": ["https://a.example"]}}, []),
        ({"admin": "off"}, ["admin"]),
        ({"admin": {"port": 1}}, ["admin.port"]),
        ({"store": {"url": "redis://elsewhere"}, "lease": "3s"}, ["lease", "store.url"]),
        ({"secret": "another secret of ours"}, ["secret"]),
        ({"identity": {"header": "x-user"}}, ["identity.header"]),
        ({"limits": {"tasks_per_scope": 1, "request_bytes": "1MiB", "rates": {"get": "off"}}}, []),
        ({"limits": {"result_bytes": "1MiB"}}, ["limits.result_bytes"]),
        ({"drain": "1s", "drain_delay": "1s", "log": {"level": "debug", "format": "text"}}, []),
        ({"plugins": [{"name": "webhook", "url": "http://localhost/"}]}, ["plugins"]),
        ({"upstreams": {"three": {"command": ["three"]}}}, []),
    ],
)
def test_what_is_built_in_needs_a_start(more: dict[str, Any], names: list[str]) -> None:
    assert needs_start(config(), config(**more)) == names


def test_what_is_live_is_an_option() -> None:
    for place in LIVE:
        here: Any = Config
        for name in place:
            assert name in here.model_fields, place
            here = here.model_fields[name].annotation


def test_upstreams_are_told_apart_by_what_happened_to_them() -> None:
    new = config(upstreams={"two": {"command": ["two", "-v"]}, "three": {"command": ["three"]}})
    assert changed_upstreams(config(), new) == (["three"], ["two"], ["one"])
    assert changed_upstreams(new, new) == ([], [], [])
