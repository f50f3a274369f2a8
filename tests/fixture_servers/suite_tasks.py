"""The tools that the task scenarios call by name, on a server that knows nothing of tasks.

Each takes its time, fails or asks as an ordinary call does; what becomes a task is the business of
whoever stands in front (`POLICIES` says what a gateway is told for the scenarios to be met).
"""

from __future__ import annotations

import json
from functools import partial

import anyio

from tests.fixture_servers.contents import Call, Contents, Json, RpcFailed, ToolFailed

# Longer than the window in which a call may be answered without a task.
AFTER_ANSWER = 1.5
STEP = 0.5
# The `tasks` section of the upstream: seconds 0 is answered at once and seconds 1 is a task.
POLICIES: Json = {
    "default": "optional",
    "inline_within": "500ms",
    "poll_interval": "200ms",
    "tools": {
        "greet": "forbidden",
        "test_tool_with_task": "optional",
        "slow_compute": "optional",
        "*_job": "required",
        "confirm_delete": "required",
        "multi_input": "required",
        "*": "forbidden",
    },
}
CONFIRM: Json = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
NAME: Json = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def add(contents: Contents) -> None:
    """Offer the tools."""
    _working(contents)
    _failing(contents)
    _asking(contents)


async def elicit(call: Call, name: str, message: str, schema: Json) -> Json:
    """Ask for a form under a name and return the whole result."""
    return await call.ask("elicitation/create", {"message": message, "requestedSchema": schema}, name)


def _working(contents: Contents) -> None:
    @contents.tool({"name": {"type": "string"}}, ["name"])
    async def greet(call: Call, arguments: Json) -> str:
        """Greet at once."""
        return f"Hello, {arguments['name']}!"

    @contents.tool({"seconds": {"type": "number"}, "label": {"type": "string"}}, ["seconds"])
    async def slow_compute(call: Call, arguments: Json) -> str:
        """Compute for some seconds, with progress."""
        seconds = float(arguments["seconds"])
        begin = anyio.current_time()
        while (left := begin + seconds - anyio.current_time()) > 0:
            await call.progress(seconds - left, seconds, "computing")
            await anyio.sleep(min(left, STEP))
        return f"Computed {arguments.get('label', 'something')} in {seconds:g} seconds."


def _failing(contents: Contents) -> None:
    @contents.tool()
    async def failing_job(call: Call, arguments: Json) -> str:
        """Fail with isError after a while."""
        await anyio.sleep(STEP)
        raise ToolFailed("The job has failed.")

    @contents.tool()
    async def protocol_error_job(call: Call, arguments: Json) -> str:
        """Fail with a JSON-RPC error."""
        raise RpcFailed(-32603, "The job has crashed.", {"job": "protocol_error_job"})


def _asking(contents: Contents) -> None:
    @contents.tool({"filename": {"type": "string"}}, ["filename"])
    async def confirm_delete(call: Call, arguments: Json) -> str:
        """Elicit a confirmation."""
        filename = str(arguments["filename"])
        answer = await elicit(call, "confirm", f"Delete {filename}?", CONFIRM)
        confirmed = answer["action"] == "accept" and answer["content"].get("confirm")
        return f"{filename} was {'deleted' if confirmed else 'kept'}."

    @contents.tool()
    async def multi_input(call: Call, arguments: Json) -> str:
        """Elicit two names at once."""
        names: Json = {}

        async def keep(which: str) -> None:
            answer = await elicit(call, which, f"What is the {which} name?", NAME)
            names[which] = answer.get("content", {}).get("name")

        async with anyio.create_task_group() as both:
            for which in ("first", "second"):
                both.start_soon(partial(keep, which))
        return json.dumps(names, sort_keys=True)

    @contents.tool()
    async def test_tool_with_task(call: Call, arguments: Json) -> str:
        """Elicit a name, then work for longer than a caller likes to wait."""
        answer = await elicit(call, "user_name", "What is your name?", NAME)
        await anyio.sleep(AFTER_ANSWER)
        return f"Hello, {answer.get('content', {}).get('name', 'nobody')}!"
