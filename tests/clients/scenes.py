"""What the Python programs share: the plan, one account for each scene, answers to what servers ask.

Only the standard library is imported, since each program runs in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

LIMIT = 45.0
NAME = "Ada"

Play: TypeAlias = Callable[["Scene"], Awaitable[None]]


class Scene:
    """One scene and the account of it."""

    def __init__(self, url: str, entry: dict[str, Any], options: list[str]) -> None:
        self.url: str = entry.get("url", url)
        self.options = options
        self.scene: str = entry["scene"]
        self.tool: str = entry["tool"]
        self.arguments: dict[str, Any] = entry.get("arguments", {})
        self.statuses: list[str] = []
        self.facts: dict[str, Any] = {"dialect": "none", "asked": 0, "progress": 0}

    def saw(self, status: str) -> str:
        """Keep a status where it differs from the last one, and return it."""
        if self.statuses[-1:] != [status]:
            self.statuses.append(status)
        return status

    def asked(self) -> None:
        """Count a question of the server."""
        self.facts["asked"] += 1

    def step(self) -> None:
        """Count a progress notification."""
        self.facts["progress"] += 1

    def tell(self, **facts: Any) -> None:
        """Add to the account."""
        self.facts |= facts

    def account(self, error: dict[str, Any] | None) -> dict[str, Any]:
        """Return what happened."""
        told = {"ok": error is None, **self.facts, "statuses": self.statuses}
        return told if error is None else {**told, "error": error}


def answer(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Return values for the required properties of a form, a name for every text."""
    asked = schema or {}
    properties: dict[str, Any] = asked.get("properties", {})
    return {name: _value(properties.get(name, {})) for name in asked.get("required", [])}


def _value(shape: dict[str, Any]) -> Any:
    values: dict[str, Any] = {"boolean": True, "integer": 1, "number": 1, "array": []}
    return shape["enum"][0] if "enum" in shape else values.get(shape.get("type", ""), NAME)


def words(content: list[Any]) -> str:
    """Return the texts of content blocks, be they objects or plain JSON."""
    blocks: list[Any] = [
        SimpleNamespace(**block) if isinstance(block, dict) else block for block in content
    ]
    return "\n".join(block.text for block in blocks if block.type == "text")


def failure(error: BaseException) -> dict[str, Any]:
    """Return code and message of an error, the innermost of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    inner: Any = getattr(error, "error", None)
    code = getattr(inner, "code", getattr(error, "code", None))
    return {"kind": type(error).__name__, "code": code, "message": str(error)[:500]}


async def _one(play: Play, scene: Scene) -> dict[str, Any]:
    try:
        async with asyncio.timeout(LIMIT):
            await play(scene)
    except Exception as error:  # noqa: BLE001 - whatever a foreign client raises is what is to be told
        return scene.account(failure(error))
    return scene.account(None)


async def _all(play: Play, url: str, plan: list[dict[str, Any]], options: list[str]) -> dict[str, Any]:
    scenes = [Scene(url, entry, options) for entry in plan]
    accounts = await asyncio.gather(*(_one(play, scene) for scene in scenes))
    return {scene.scene: account for scene, account in zip(scenes, accounts, strict=True)}


def main(play: Play) -> None:
    """Play the scenes of the command line, each on a connection of its own, and write the accounts."""
    url, plan, *options = sys.argv[1:]
    accounts = asyncio.run(_all(play, url, json.loads(plan), options))
    sys.stdout.write(f"{json.dumps(accounts)}\n")
