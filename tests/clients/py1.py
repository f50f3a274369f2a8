"""`mcp` 1.30, `session.experimental`: dialect B of the official Python package."""

from __future__ import annotations

from typing import Any

from mcp import types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.clients import scenes
from tests.clients.scenes import Scene


async def play(scene: Scene) -> None:
    """Play one scene."""

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        scene.asked()
        return types.ElicitResult(action="accept", content=scenes.answer(params.requestedSchema))

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        scene.asked()
        text = types.TextContent(type="text", text="In short: good.")
        return types.CreateMessageResult(role="assistant", content=text, model="test")

    async with (
        streamable_http_client(scene.url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicit, sampling_callback=sample) as session,
    ):
        welcome = await session.initialize()
        scene.tell(version=welcome.protocolVersion)
        if scene.scene.startswith("plain"):
            _result(scene, await session.call_tool(scene.tool, scene.arguments))
        elif scene.scene == "progress":
            await _progress(session, scene)
        else:
            await _task(session, scene)


async def _progress(session: ClientSession, scene: Scene) -> None:
    async def step(done: float, total: float | None, message: str | None) -> None:
        scene.step()

    _result(scene, await session.call_tool(scene.tool, scene.arguments, progress_callback=step))


async def _task(session: ClientSession, scene: Scene) -> None:
    tasks = session.experimental
    created = await tasks.call_tool_as_task(scene.tool, scene.arguments, ttl=60_000)
    scene.tell(dialect="B")
    scene.saw(created.task.status)
    task_id = created.task.taskId
    if scene.scene == "cancel":
        scene.saw((await tasks.cancel_task(task_id)).status)
    async for state in tasks.poll_task(task_id):
        # Its own advice: only the stream of tasks/result brings the questions.
        if scene.saw(state.status) == "input_required":
            _result(scene, await tasks.get_task_result(task_id, types.CallToolResult))
    if scene.scene == "cancel":
        return
    _result(scene, await tasks.get_task_result(task_id, types.CallToolResult))
    if scene.scene == "list":
        listed = await tasks.list_tasks()
        scene.tell(listed=task_id in {task.taskId for task in listed.tasks})


def _result(scene: Scene, result: types.CallToolResult) -> None:
    scene.tell(result=scenes.words(result.content), is_error=result.isError)


scenes.main(play)
