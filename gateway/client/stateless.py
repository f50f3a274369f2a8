"""What every request of the stateless era carries: metadata in the body, mirrored in headers; cold.

2026-07-28, basic ("_meta") and basic/transports/streamable-http ("Request Metadata").
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from gateway.client.sep2663 import EXTENSION
from gateway.protocol.eras import STATELESS

VERSION: Final = STATELESS[0]

_PREFIX: Final = "io.modelcontextprotocol/"
_OPEN: Final = "=?base64?"
_CLOSE: Final = "?="
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


class Modern(msgspec.Struct, frozen=True, kw_only=True):
    """How this client presents itself in each request; `tasks` declares the extension."""

    name: str
    version: str
    capabilities: dict[str, Any]
    tasks: bool
    log_level: str | None

    def dress(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return params with the protocol's own `_meta`."""
        capabilities = dict(self.capabilities)
        if self.tasks:
            capabilities["extensions"] = {EXTENSION: {}}
        meta: dict[str, Any] = {
            f"{_PREFIX}protocolVersion": VERSION,
            f"{_PREFIX}clientInfo": {"name": self.name, "version": self.version},
            f"{_PREFIX}clientCapabilities": capabilities,
        }
        if self.log_level is not None:
            meta[f"{_PREFIX}logLevel"] = self.log_level
        return {**params, "_meta": {**params.get("_meta", {}), **meta}}


def headers_of(method: str, params: dict[str, Any]) -> dict[str, str]:
    """Return the headers that mirror a request ("Standard Request Headers", and SEP-2663 for tasks)."""
    headers = {"Mcp-Method": method}
    if (member := _NAMES.get(method)) is not None:
        headers["Mcp-Name"] = header_value(str(params[member]))
    return headers


def header_value(text: str) -> str:
    """Return a text as a header can carry it ("Value Encoding")."""
    plain = all(char == "\t" or " " <= char <= "~" for char in text) and text == text.strip(" \t")
    if plain and not (text.startswith(_OPEN) and text.endswith(_CLOSE)):
        return text
    return f"{_OPEN}{base64.b64encode(text.encode(errors='replace')).decode()}{_CLOSE}"
