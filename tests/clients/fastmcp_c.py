"""FastMCP 4.1 with `fastmcp_tasks`: dialect C, transparently by `call_tool` and by its task handle."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

from tests.clients import scenes
from tests.clients.scenes import Scene

POLL = 0.1
BARE = "bare" in sys.argv
# Its import is what makes clients declare the extension; a bare one does not.
tasks: Any = None if BARE else importlib.import_module("fastmcp_tasks")


async def play(scene: Scene) -> None:
    """Play one scene; the plain ones call the tool and leave it to the client what that means."""

    async def elicit(message: str, kind: Any, params: Any, context: Any) -> ElicitResult[Any]:
        scene.asked()
        return ElicitResult(action="accept", content=scenes.answer(params.requested_schema))

    async def step(done: float, total: float | None, message: str | None) -> None:
        scene.step()

    async with Client(scene.url, elicitation_handler=elicit, progress_handler=step) as client:
        scene.tell(version=client.session.protocol_version)
        if BARE or scene.scene.startswith("plain") or scene.scene == "progress":
            _result(scene, await client.call_tool(scene.tool, scene.arguments, raise_on_error=False))
        else:
            await _task(client, scene)


async def _task(client: Client[Any], scene: Scene) -> None:
    task = await tasks.call_tool_task(client, scene.tool, scene.arguments, raise_on_error=False)
    scene.tell(dialect="C")
    scene.saw(task.create_result.status)
    if scene.scene == "cancel":
        await task.cancel()
        scene.saw((await task.wait()).status)
        return
    if scene.scene == "input":
        await _until_asked(task, scene)
    result = await task.result()
    scene.saw((await task.status()).status)
    _result(scene, result)


async def _until_asked(task: Any, scene: Scene) -> None:
    """Poll while the task works; the client's own wait for a state would go on after the end."""
    while scene.saw((await task.status()).status) == "working":  # noqa: ASYNC110 - the task is elsewhere
        await asyncio.sleep(POLL)


def _result(scene: Scene, result: Any) -> None:
    scene.tell(result=scenes.words(result.content), is_error=result.is_error)


scenes.main(play)
