"""`python -m gateway` is the command `mcp-task-gateway`."""

from gateway.cli import main

raise SystemExit(main())
