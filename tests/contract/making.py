"""What the contract tests make: tasks, claims, names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.store.port import Bounds, Claim
from gateway.store.redis import RedisStore
from gateway.tasks.model import NewTask, Outcome, Pending, Scope, Status, Task, TaskKey

SCOPE = Scope("reports", "alice")
OURS = Claim("r1", 1)
ROOMY = Bounds(active=100, stored=100)
LEASE_MS = 30_000
DONE = Outcome(status="completed", result=b'{"content":[]}')


def key_of(task_id: str = "t1", scope: Scope = SCOPE) -> TaskKey:
    """Return the key of a task."""
    return TaskKey(scope, task_id)


def new_task(
    key: TaskKey,
    *,
    keep_alive: int | None = 60_000,
    first_status: Status = "submitted",
    session: str = "s1",
    request_id: bytes = b"1",
    timeout: int = 10_000,
) -> NewTask:
    """Return a task as it is before the store has seen it."""
    return NewTask(
        key=key,
        dialect="a",
        method="tools/call",
        tool="render",
        pattern="render_*",
        session=session,
        request_id=request_id,
        keep_alive=keep_alive,
        poll_interval=2_000,
        timeout=timeout,
        first_status=first_status,
    )


async def create(
    store: RedisStore, key: TaskKey, *, keep_alive: int | None = 60_000, status: Status = "submitted"
) -> Task:
    """Create a task for the replica r1 and bring it to a status."""
    first: Status = "working" if status == "working" else "submitted"
    made = await store.create(
        new_task(key, keep_alive=keep_alive, first_status=first), "r1", LEASE_MS, ROOMY
    )
    assert isinstance(made, Task)
    if status == "input_required":
        asked = await store.ask(key, OURS, pending())
        assert asked is not None
        return asked
    if status not in ("submitted", "working"):
        ended = await store.finish(key, OURS, Outcome(status=status))
        assert ended is not None
        return ended
    return made


def pending(relay_id: str = "q1", upstream_id: bytes = b"7") -> Pending:
    """Return a server request."""
    return Pending(relay_id, upstream_id, "elicitation/create", b'{"jsonrpc":"2.0"}')


async def until(
    condition: Callable[[], Awaitable[bool]], *, seconds: float = 10.0, words: str = "it did not happen"
) -> None:
    """Ask again and again until it is so; fail with `words` after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110  # another process decides when; there is no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(words) from None
