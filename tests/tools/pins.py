"""What is installed for the tests, to the version: behaviour differs between releases of all of these."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

# A name of our own for each npm prefix: two releases of one package need two.
NPM: dict[str, tuple[str, ...]] = {
    "servers": (
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
    ),
    "conformance": ("@modelcontextprotocol/conformance@0.1.16",),
    "conformance-next": ("@modelcontextprotocol/conformance@0.2.0-alpha.12",),
}

VENVS: dict[str, Path] = {name: _HERE / f"{name}.txt" for name in ("mcp1", "time", "fastmcp4")}

# Only the benchmark needs these; they are installed on request.
ON_REQUEST = frozenset({"fastmcp4"})
