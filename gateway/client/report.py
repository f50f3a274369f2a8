"""Outcomes for a person or a script: text on stdout, words on stderr, an exit code."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.client.options import LATEST, Outcome, Target
from gateway.client.screen import Screen
from gateway.client.trees import as_object, as_objects
from gateway.client.view import Letter, TaskView
from gateway.client.watch import as_error
from gateway.config.units import show_duration
from gateway.protocol.envelope import dump, value
from gateway.protocol.errors import Refusal, UpstreamLost

PROG: Final = "mcp-task-gateway"


def program() -> list[str]:
    """Return the words that start this program again from the folder it was started in."""
    path = Path(sys.argv[0])
    if path.name != PROG:
        return [PROG]
    return [PROG] if shutil.which(PROG) == str(path) else [os.path.relpath(path)]


FINE: Final = 0
FAILED: Final = 1
NO_WAY: Final = 2


class WayBack(msgspec.Struct, frozen=True, kw_only=True):
    """What a later command needs to find a task.

    `request_id` is JSON bytes, `None` where the task is cancelled by its own id.
    """

    task_id: str
    target: Target
    letter: Letter
    session: str | None
    version: str
    request_id: bytes | None

    @property
    def lines(self) -> dict[str, str]:
        """The command lines that come back, by action."""
        tail = ["--dialect", self.letter]
        if self.session is not None:
            tail += ["--session", self.session]
        if self.letter != "c" and self.version != LATEST:
            tail += ["--protocol-version", self.version]
        head = [self.target.url, self.task_id, *self.target.repeat]
        return {
            action: shlex.join([*program(), "tasks", action, *head, *tail])
            for action in ("get", "result", "cancel")
        }

    def members(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        members: dict[str, Any] = {"taskId": self.task_id, "dialect": self.letter}
        if self.letter != "c":
            members["session"] = self.session
        if self.request_id is not None:
            members["requestId"] = msgspec.Raw(self.request_id)
        return {**members, "next": self.lines}


def show_outcome(screen: Screen, outcome: Outcome) -> int:
    """Print a result or an error and return the exit code."""
    members: dict[str, Any] = {"status": outcome.status}
    if outcome.task_id is not None:
        members["taskId"] = outcome.task_id
    if outcome.result is None:
        error = outcome.error or {"message": outcome.status}
        screen.object({**members, "error": error})
        _complain(screen, error)
        return FAILED
    result = as_object(value(outcome.result))
    failed = result.get("isError") is True
    # Raw, so that numbers and unknown members come out as they came in.
    raw = msgspec.Raw(msgspec.json.format(outcome.result, indent=-1))
    screen.object({**members, "isError": failed, "result": raw})
    if failed:
        screen.complain("the tool reports an error:")
    _show_content(screen, result)
    return FAILED if failed else FINE


def show_failure(screen: Screen, wrong: Refusal | UpstreamLost, hint: str | None = None) -> int:
    """Print why nothing came of it and return the exit code."""
    error = as_error(wrong)
    screen.object({"status": "error", "error": error})
    _complain(screen, error)
    if hint is not None:
        screen.note(hint)
    return FAILED if isinstance(wrong, Refusal) else NO_WAY


def show_task(screen: Screen, view: TaskView) -> int:
    """Print one task."""
    screen.object({"taskId": view.task_id, "status": view.status, "task": view.members})
    screen.text(f"task       {view.task_id}\nstatus     {view.status}")
    screen.text(f"kept       {_kept(view)}")
    if view.poll is not None and not view.ended:
        screen.text(f"ask again  after {show_duration(int(view.poll))}")
    if view.words is not None:
        screen.text(f"{'error' if view.status == 'failed' else 'says':<10} {view.words}")
    for key, ask in view.asks.items():
        screen.text(f"asks       {key}: {as_object(value(ask)).get('method')}")
    return FINE


def show_tasks(screen: Screen, views: list[TaskView], *, more: bool) -> int:
    """Print a list of tasks; `more` tells that the limit cut it."""
    screen.object({"tasks": [view.members for view in views], "more": more})
    if not views:
        screen.note("no tasks")
    width = max((len(view.task_id) for view in views), default=0)
    for view in views:
        tail = f"  {view.words}" if view.words else ""
        screen.text(f"{view.task_id:<{width}}  {view.status:<14}  kept {_kept(view)}{tail}")
    if more:
        screen.note("there are more: raise --limit")
    return FINE


def show_detached(screen: Screen, view: TaskView, back: WayBack) -> int:
    """Print how to come back to a task that was left alone."""
    screen.object({"status": view.status, **back.members(), "task": view.members})
    screen.text(view.task_id)
    screen.note(f"the task runs on; its result is kept {_kept(view)}")
    _show_way(screen, back)
    return FINE


def show_unknown(screen: Screen, wrong: Refusal | UpstreamLost, back: WayBack) -> int:
    """Print why the end of a task could not be learned, and how to come back to it."""
    error = as_error(wrong)
    screen.object({"status": "error", "error": error, **back.members()})
    _complain(screen, error)
    screen.note("the task may run on; come back with")
    _show_way(screen, back)
    return FAILED if isinstance(wrong, Refusal) else NO_WAY


def _show_way(screen: Screen, back: WayBack) -> None:
    for line in back.lines.values():
        screen.note(f"  {line}")
    if len(back.target.headers) > len(back.target.repeat) // 2:
        screen.note("give the same --header options again")


def _complain(screen: Screen, error: dict[str, object]) -> None:
    code = f" ({error['code']})" if "code" in error else ""
    screen.complain(f"{error.get('message')}{code}")
    if "retryAfter" in error:
        screen.note(f"try again in {error['retryAfter']:g} s")
    if "data" in error:
        screen.note(f"  {dump(error['data']).decode()}")


def _show_content(screen: Screen, result: dict[str, Any]) -> None:
    blocks = as_objects(result.get("content"))
    for block in blocks:
        screen.text(_spell_block(block))
    if not blocks and "structuredContent" in result:
        screen.text(dump(result["structuredContent"]).decode())


def _spell_block(block: dict[str, Any]) -> str:
    """Return a content block as text; what is no text is named, not dumped."""
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return str(block.get("uri", ""))
    if resource := as_object(block.get("resource")):
        return str(resource.get("text") or f"[resource {resource.get('uri')}]")
    size = len(str(block.get("data", ""))) * 3 // 4
    return f"[{kind} {block.get('mimeType', '')}, about {size} bytes; --json has them]"


def _kept(view: TaskView) -> str:
    if view.kept is msgspec.UNSET:
        return "for a time that it has not said"
    if view.kept is None:
        return "for ever"
    return f"{show_duration(int(view.kept))} after its {view.kept_from}"
