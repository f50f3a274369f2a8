"""The Inspector 2.12 without its window: `mcp-inspector --cli` and `mcpdo`, in either era.

`python -m tests.clients.inspector URL PLAN ERA`, the era as the programs name it: legacy or auto. A
daemon of its own holds the connections of `mcpdo`; it and its folder are gone at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, cast

from tests.clients import scenes
from tests.clients.scenes import Scene
from tests.tools import npm_program

RELATED = "io.modelcontextprotocol/related-task"
PACKAGE = "@modelcontextprotocol/inspector"
POLL = 0.3
QUIET = ["--format", "json", "--stored-auth-only"]


class Failed(Exception):
    """The program told of an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.code = error.get("code")


async def _run(program: str, *arguments: str) -> dict[str, Any]:
    """Run a program of the package and return what it wrote; raise `Failed`."""
    command = [*npm_program("inspector", PACKAGE, program), *arguments]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        out, told = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if out.strip():
        return cast("dict[str, Any]", json.loads(out))
    errors = [line for line in told.decode().splitlines() if line.startswith('{"error"')]
    raise Failed(json.loads(errors[-1])["error"] if errors else {"message": told.decode()[-300:]})


async def play(scene: Scene) -> None:
    """Play one scene."""
    (era,) = scene.options
    if scene.scene == "plain":
        target = ["--cli", "--server-url", scene.url, "--transport", "http", "--protocol-era", era, "-q"]
        call = ["--method", "tools/call", "--tool-name", scene.tool]
        arguments = ["--tool-args-json", json.dumps(scene.arguments)]
        told = await _run("mcp-inspector", *target, *QUIET, *call, *arguments)
        _result(scene, told["result"])
        return
    name = f"{scene.scene}-{era}"
    made = await _do(name, "connect", "--transport", "http", "--era", era, scene.url)
    scene.tell(version=made["protocolEra"])
    plain = scene.scene.startswith("plain")
    call = ["tools/call", *([] if plain else ["--task"]), scene.tool, json.dumps(scene.arguments)]
    if scene.scene == "cancel":
        await _cancel(scene, name, call, era)
        return
    told = await _do(name, *call)
    while pending := told.get("elicitationPending"):
        scene.asked()
        given = json.dumps(scenes.answer(pending["requestedSchema"]))
        told = await _do(name, "elicitation/respond", pending["elicitationId"], given)
    # In the stateless era nothing that is written tells of a task.
    if task := told.get("_meta", {}).get(RELATED):
        scene.tell(dialect="B")
    _result(scene, told)
    if scene.scene == "list":
        listed = await _do(name, "tasks/list")
        scene.tell(listed=bool(task) and task["taskId"] in {one["taskId"] for one in listed["tasks"]})


async def _cancel(scene: Scene, name: str, call: list[str], era: str) -> None:
    """Cancel from a second connection, since the first is taken by its call until that ends."""
    other = f"{name}-other"
    await _do(other, "connect", "--transport", "http", "--era", era, scene.url)
    calling = asyncio.create_task(_do(name, *call))
    working: list[str] = []
    while not working:
        tasks = (await _do(other, "tasks/list"))["tasks"]
        working = [task["taskId"] for task in tasks if task["status"] == "working"]
        await asyncio.sleep(POLL)
    scene.tell(dialect="B")
    scene.saw("working")
    await _do(other, "tasks/cancel", working[-1])
    scene.saw((await _do(other, "tasks/get", working[-1]))["status"])
    try:
        _result(scene, await calling)
    except Failed as ended:
        scene.tell(ended=str(ended))


async def _do(connection: str, *command: str) -> dict[str, Any]:
    return await _run("mcpdo", "--connection", connection, *QUIET, *command)


def _result(scene: Scene, result: dict[str, Any]) -> None:
    scene.tell(result=scenes.words(result["content"]), is_error=result.get("isError", False))


def main() -> None:
    """Play with a daemon of our own."""
    with tempfile.TemporaryDirectory(prefix="inspector-") as home:
        os.environ |= {"MCP_INSPECTOR_SECRET_STORE": "memory", "HOME": home, "TMPDIR": home}
        mcpdo = npm_program("inspector", PACKAGE, "mcpdo")
        # It prints what a shell would evaluate.
        exports = subprocess.run([*mcpdo, "private"], capture_output=True, text=True, check=True).stdout
        os.environ |= dict(re.findall(r"^export (\w+)='(.*)'$", exports, re.MULTILINE))
        try:
            scenes.main(play)
        finally:
            subprocess.run([*mcpdo, "daemon", "stop"], capture_output=True, check=False, timeout=20)


if __name__ == "__main__":
    sys.exit(main())
