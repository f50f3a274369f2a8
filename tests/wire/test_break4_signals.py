"""SIGHUP at moments when nobody expects it (issue 4, configuration reload)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.gateways import Gateway


def test_a_reload_that_is_asked_for_while_the_store_is_awaited_kills_nobody(tmp_path: Path) -> None:
    """Without a secret of its own a replica waits for the store that has it."""
    config: dict[str, Any] = {
        "store": {"url": f"unix://{tmp_path}/nobody-there"},
        "upstreams": {"gone": {"url": "http://127.0.0.1:9/mcp"}},
    }
    gateway = Gateway(config, tmp_path)
    try:
        gateway.process.wait_line("waiting for the store, which has the secret")
        gateway.process.send(signal.SIGHUP)
        gateway.process.send(signal.SIGTERM)
        assert gateway.process.wait_end() == 0
    finally:
        gateway.end()
