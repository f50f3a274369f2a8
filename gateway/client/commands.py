"""The commands about tasks, in the dialect that was agreed on."""

from __future__ import annotations

from typing import Any, Final

from gateway.client.follow_a import FollowerA
from gateway.client.follow_b import FollowerB
from gateway.client.follow_c import FollowerC, ending
from gateway.client.means import Means
from gateway.client.options import Outcome, Tasks
from gateway.client.plain import cancel_request
from gateway.client.report import FAILED, FINE, show_outcome, show_task, show_tasks
from gateway.client.sep1686 import DELETE, Sep1686, related
from gateway.client.v2025_11_25 import V20251125
from gateway.client.view import LIST, TaskPage, Words, read_page
from gateway.protocol.errors import UpstreamLost

Follower = FollowerA | FollowerB | FollowerC

_IGNORED: Final = (
    "the task is still {status}: the server ignored the cancellation;"
    " was the original request's id another one (--request-id)?"
)
_NOT_YET: Final = "the task is still {status}: the server has not stopped it yet, and need not"


async def run_tasks(tasks: Tasks, means: Means, follower: Follower) -> int:
    """Carry out one command and return the exit code; raise `Refusal` or `UpstreamLost`."""
    match tasks.action:
        case "list":
            return await _list(tasks, means, follower)
        case "get":
            return show_task(means.screen, await follower.watch.look(tasks.task_id))
        case "result":
            return show_outcome(means.screen, await _result(tasks, means, follower))
        case "update":
            return await _update(tasks, means, follower)
        case "delete":
            await means.connection.request(DELETE, Sep1686().about(tasks.task_id))
            means.screen.object({"taskId": tasks.task_id, "deleted": True})
            means.screen.note(f"task {tasks.task_id}: deleted")
            return FINE
        case "cancel":
            return await _cancel(tasks, means, follower)


async def _list(tasks: Tasks, means: Means, follower: Follower) -> int:
    words: Words = Sep1686() if isinstance(follower, FollowerA) else V20251125()
    views: list[Any] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        page: TaskPage = read_page(words, await means.connection.request(LIST, params))
        views += page.tasks
        if page.cursor is None or len(views) >= tasks.limit:
            more = page.cursor is not None or len(views) > tasks.limit
            return show_tasks(means.screen, views[: tasks.limit], more=more)
        if page.cursor in seen:
            raise UpstreamLost("the server repeats a cursor: its list has no end")
        seen.add(page.cursor)
        params = {"cursor": page.cursor}


async def _result(tasks: Tasks, means: Means, follower: Follower) -> Outcome:
    if tasks.wait:
        with means.screen.bar(tasks.task_id):
            return await follower.until_end(tasks.task_id)
    if isinstance(follower, FollowerA):
        return await follower.fetch(tasks.task_id)
    # The request of dialect B would wait, and dialect C has none of its own.
    view = await follower.watch.look(tasks.task_id)
    if not view.ended:
        words = f"there is no result yet: the task is {view.status} (--wait waits for its end)"
        return Outcome(status=view.status, task_id=view.task_id, error={"message": words})
    return await follower.ending(view) if isinstance(follower, FollowerB) else ending(view)


async def _update(tasks: Tasks, means: Means, follower: Follower) -> int:
    if not isinstance(follower, FollowerC):
        raise UpstreamLost("only dialect c has updates")
    answers: dict[str, Any] = dict(tasks.inputs)
    if not answers:
        view = await follower.watch.look(tasks.task_id)
        if not view.asks:
            means.screen.object({"taskId": tasks.task_id, "status": view.status, "answered": []})
            means.screen.complain(f"the task asks for nothing: it is {view.status}")
            return FAILED
        answers = await follower.answers(view.asks)
    if answers:
        await follower.update(tasks.task_id, answers)
    means.screen.object({"taskId": tasks.task_id, "answered": list(answers)})
    means.screen.note(f"task {tasks.task_id}: {len(answers)} answers sent ({', '.join(answers)})")
    return FINE if answers else FAILED


async def _cancel(tasks: Tasks, means: Means, follower: Follower) -> int:
    before = await follower.watch.look(tasks.task_id)
    status = before.status
    if not before.ended:
        status = await _stop(tasks, means, follower)
    screen = means.screen
    cancelled = status == "cancelled"
    screen.object({"taskId": tasks.task_id, "status": status})
    if cancelled or before.ended:
        screen.note(f"task {tasks.task_id}: {status}{'' if cancelled else ', it had ended before'}")
    else:
        words = _IGNORED if isinstance(follower, FollowerA) else _NOT_YET
        screen.complain(words.format(status=status))
    return FINE if cancelled else FAILED


async def _stop(tasks: Tasks, means: Means, follower: Follower) -> str:
    """Cancel a task and return its status after that."""
    if isinstance(follower, FollowerB):
        return (await follower.cancel(tasks.task_id)).status
    if isinstance(follower, FollowerC):
        await follower.cancel(tasks.task_id)
    else:
        await cancel_request(means.connection, tasks.request_id, related(tasks.task_id))
    return await follower.watch.settle(tasks.task_id)


def follower_of(letter: str | None, means: Means) -> Follower:
    """Return who follows tasks in a dialect."""
    match letter:
        case "b":
            return FollowerB(means)
        case "c":
            return FollowerC(means)
        case _:
            return FollowerA(means)
