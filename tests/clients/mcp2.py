"""`mcp` 2.3 `Client`, which knows no tasks: plain calls in the modes auto, legacy and a pinned version.

`python -m tests.clients.mcp2 URL PLAN MODE`. It runs in the project's own environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from typing import Any

from mcp import Client, types
from mcp.client.subscriptions import ListenNotSupportedError
from mcp.shared.exceptions import MCPDeprecationWarning

from tests.clients import scenes
from tests.clients.scenes import Scene


async def play(scene: Scene) -> None:
    """Play one scene; `task`, `fail` and the like are plain calls of the same tools."""
    heard = asyncio.Event()

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        scene.asked()
        schema = getattr(params, "requested_schema", None)
        return types.ElicitResult(action="accept", content=scenes.answer(schema))

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        scene.asked()
        text = types.TextContent(type="text", text="In short: good.")
        return types.CreateMessageResult(role="assistant", content=text, model="test")

    async def hear(message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            heard.set()

    (mode,) = scene.options
    client = Client(
        scene.url,
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        message_handler=hear,
    )
    async with client:
        scene.tell(version=client.protocol_version)
        if scene.scene == "subscribe":
            await _subscribe(client, scene, heard)
        else:
            await _call(client, scene)


async def _call(client: Client, scene: Scene) -> None:
    async def step(progress: float, total: float | None, message: str | None) -> None:
        scene.step()

    result = await client.call_tool(scene.tool, scene.arguments, progress_callback=step)
    scene.tell(result=scenes.words(list(result.content)), is_error=result.is_error)


async def _subscribe(client: Client, scene: Scene, heard: asyncio.Event) -> None:
    """Have a tool change the list of tools, and wait to be told."""
    with contextlib.suppress(ListenNotSupportedError):
        async with client.listen(tools_list_changed=True) as changes:
            await _call(client, scene)
            async for _ in changes:
                scene.tell(told=True)
                return
    await _call(client, scene)
    await heard.wait()
    scene.tell(told=True)


if __name__ == "__main__":
    # Sampling is deprecated from 2026-07-28 on; legacy servers use it all the same.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    scenes.main(play)
