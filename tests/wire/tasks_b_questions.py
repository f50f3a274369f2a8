"""Questions of tasks of dialect B: a task that runs, a wait for its result, and what was asked where."""

from __future__ import annotations

from tests.wire.answers import Answer
from tests.wire.scripted_upstream import Call
from tests.wire.seed_client import new_id
from tests.wire.tasks_b_client import Heard, Json, TasksB, accept
from tests.wire.tasks_b_world import Place

ADA: Json = accept(name="Ada")
SAMPLE: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 5}
SAID: Json = {"role": "assistant", "content": {"type": "text", "text": "!"}, "model": "m"}
ROOTS: Json = {"roots": [{"uri": "file:///one"}]}


async def running(place: Place, client: TasksB) -> tuple[str, Call]:
    """Return a task that runs, and its call."""
    key = new_id()
    task = await client.start("work", {"key": key})
    return task, await place.upstream.called(key)


async def waits(client: TasksB, task: str) -> Answer:
    """Open a `tasks/result` that waits, and return it when its stream is open."""
    answer = await client.post(client.request("tasks/result", {"taskId": task}))
    assert answer.is_stream
    return answer


async def question_on(answer: Answer) -> Json:
    """Read up to a request of the server."""
    return await answer.until(lambda message: "method" in message and "id" in message)


def asks(one: Heard) -> bool:
    """Tell whether a message is a request of the server."""
    return "method" in one.message and "id" in one.message


def questions(client: TasksB) -> list[Heard]:
    """Return all requests of the server that the client has heard, on whichever stream."""
    return [one for one in client.heard if asks(one)]
