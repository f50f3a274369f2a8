"""The commands about tasks: list, get, result, delete, cancel (SEP-1686, sections 3.2 to 3.6 and 4.8)."""

from __future__ import annotations

from typing import Any

from gateway.client.call import cancel_request, settle_cancel
from gateway.client.connection import Connection
from gateway.client.follow import Follower
from gateway.client.options import Tasks
from gateway.client.report import FAILED, FINE, show_outcome, show_task, show_tasks
from gateway.client.screen import Screen
from gateway.client.sep1686 import DELETE, LIST, TaskView, about, read_page
from gateway.protocol.errors import UpstreamLost


async def run_tasks(tasks: Tasks, connection: Connection, screen: Screen, follower: Follower) -> int:
    """Carry out one command and return the exit code; raise `Refusal` or `UpstreamLost`."""
    if tasks.action == "list":
        views, more = await _list(connection, tasks.limit)
        return show_tasks(screen, views, more=more)
    if tasks.action == "get":
        return show_task(screen, await follower.look(tasks.task_id))
    if tasks.action == "result":
        return await _result(tasks, screen, follower)
    if tasks.action == "delete":
        await connection.request(DELETE, about(tasks.task_id))
        screen.object({"taskId": tasks.task_id, "deleted": True})
        screen.note(f"task {tasks.task_id}: deleted")
        return FINE
    return await _cancel(tasks, connection, screen, follower)


async def _list(connection: Connection, limit: int) -> tuple[list[TaskView], bool]:
    views: list[TaskView] = []
    seen: set[str] = set()
    params: dict[str, Any] = {}
    while True:
        page = read_page(await connection.request(LIST, params))
        views += page.tasks
        cursor = page.next_cursor
        if cursor is None or len(views) >= limit:
            return views[:limit], cursor is not None or len(views) > limit
        if cursor in seen:
            raise UpstreamLost("the server repeats a cursor: its list has no end")
        seen.add(cursor)
        params = {"cursor": cursor}


async def _result(tasks: Tasks, screen: Screen, follower: Follower) -> int:
    if not tasks.wait:
        return show_outcome(screen, await follower.fetch(tasks.task_id))
    with screen.bar(tasks.task_id):
        outcome = await follower.until_end(tasks.task_id, None)
    return show_outcome(screen, outcome)


async def _cancel(tasks: Tasks, connection: Connection, screen: Screen, follower: Follower) -> int:
    before = await follower.look(tasks.task_id)
    status = before.status
    if not before.ended:
        await cancel_request(connection, tasks.request_id, tasks.task_id)
        status = await settle_cancel(follower, tasks.task_id)
    cancelled = status == "cancelled"
    screen.object({"taskId": tasks.task_id, "status": status})
    if cancelled or before.ended:
        screen.note(f"task {tasks.task_id}: {status}{'' if cancelled else ', it had ended before'}")
    else:
        screen.complain(
            f"the task is still {status}: the server ignored the cancellation;"
            " was the original request's id another one (--request-id)?"
        )
    return FINE if cancelled else FAILED
