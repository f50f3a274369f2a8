"""FastMCP 4's own task server, run in a virtual environment of its own.

`python -m tests.bench.fastmcp4_server PORT REDIS_URL CONCURRENCY CHECK_MS`
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta

from tests.bench import payloads


def main(port: int, redis_url: str, concurrency: int, check_ms: int) -> None:
    """Serve the tool `small` as a task-capable tool until the process is ended."""
    # Imported by name: the package is not in the environment that checks this file's types.
    server = importlib.import_module("fastmcp").FastMCP("bench")
    extension = importlib.import_module("fastmcp_tasks").TasksExtension(
        url=redis_url,
        name=f"bench-{port}",
        concurrency=concurrency,
        minimum_check_interval=timedelta(milliseconds=check_ms),
    )
    server.add_extension(extension)

    async def small() -> str:
        return payloads.TEXTS["small"]

    server.tool(small, task=True, output_schema=None)
    # uvicorn takes uvloop and httptools by itself where they are installed.
    server.run(
        transport="http",
        host="127.0.0.1",
        port=port,
        json_response=True,
        stateless_http=True,
        show_banner=False,
        log_level="error",
        uvicorn_config={
            "loop": "uvloop",
            "http": "httptools",
            "access_log": False,
            "timeout_keep_alive": 600,
        },
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
