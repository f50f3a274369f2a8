"""FastMCP 2.14 and 3.4, `call_tool(task=True)`: dialect B as the two understand it."""

from __future__ import annotations

from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

from tests.clients import scenes
from tests.clients.scenes import Scene


async def play(scene: Scene) -> None:
    """Play one scene."""

    async def elicit(message: str, kind: Any, params: Any, context: Any) -> ElicitResult[Any]:
        scene.asked()
        return ElicitResult(action="accept", content=scenes.answer(params.requestedSchema))

    async def step(done: float, total: float | None, message: str | None) -> None:
        scene.step()

    async def sample(messages: Any, params: Any, context: Any) -> str:
        scene.asked()
        return "In short: good."

    client = Client(scene.url, elicitation_handler=elicit, progress_handler=step, sampling_handler=sample)
    async with client:
        scene.tell(version=client.initialize_result.protocolVersion)
        if scene.scene.startswith("plain") or scene.scene == "progress":
            _result(scene, await client.call_tool(scene.tool, scene.arguments, raise_on_error=False))
        else:
            await _task(client, scene)


async def _task(client: Client[Any], scene: Scene) -> None:
    task = await client.call_tool(scene.tool, scene.arguments, task=True, ttl=60_000, raise_on_error=False)
    scene.tell(dialect="none" if task.returned_immediately else "B")
    task.on_status_change(lambda state: scene.saw(state.status) and None)
    scene.saw((await client.get_task_status(task.task_id)).status)
    if scene.scene == "cancel":
        await task.cancel()
        scene.saw((await client.get_task_status(task.task_id)).status)
        return
    result = await task.result()
    scene.saw((await client.get_task_status(task.task_id)).status)
    _result(scene, result)
    if scene.scene == "list":
        listed = await client.list_tasks()
        scene.tell(listed=task.task_id in {entry["taskId"] for entry in listed["tasks"]})


def _result(scene: Scene, result: Any) -> None:
    scene.tell(result=scenes.words(result.content), is_error=result.is_error)


scenes.main(play)
