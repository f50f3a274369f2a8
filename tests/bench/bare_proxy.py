"""The yardstick: a reverse proxy of aiohttp on both sides that knows nothing of MCP.

Run as `python -m tests.bench.bare_proxy PORT TARGET asyncio|uvloop`; prints `ready` when it listens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import aiohttp
import uvloop
from aiohttp import web
from multidict import CIMultiDict

HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "host",
    "content-length",
}


def passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in HOP)


async def serve(port: int, target: str) -> None:
    everything = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        target, connector=connector, timeout=everything, auto_decompress=False
    ) as client:

        async def relay(request: web.Request) -> web.StreamResponse:
            body = await request.read() if request.body_exists else None
            headers = passed_on(request.headers)
            async with client.request(
                request.method, request.rel_url, data=body, headers=headers
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=passed_on(answer.headers))
                response.content_length = answer.content_length
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    loop_factory = uvloop.new_event_loop if sys.argv[3] == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as running:
        running.run(serve(int(sys.argv[1]), sys.argv[2]))
