"""The contents of the conformance suites on `mcp` 1.x, whose virtual environment runs this module."""

from __future__ import annotations

from tests.fixture_servers import mcp1_server, serving, suite_tools

if __name__ == "__main__":
    made = suite_tools.make()
    serving.serve(mcp1_server.build(made), made, serving.arguments(__doc__))
