"""`python -m gateway.demo` serves the demo upstream on stdin and stdout."""

import warnings

from mcp.shared.exceptions import MCPDeprecationWarning

from gateway.demo.server import server

# Sampling is deprecated from 2026-07-28 on; a legacy server uses it all the same.
warnings.simplefilter("ignore", MCPDeprecationWarning)
server.run("stdio")
