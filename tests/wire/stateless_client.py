"""A client of protocol 2026-07-28 with the tasks extension (dialect C), written from the texts alone.

It shares no line with the gateway, so that a wrong reading of a text cannot hide on both sides of the
wire. All that it sends and receives is checked against the official schemas; `send` alone checks
nothing of what it sends, for messages that are wrong on purpose. Nothing runs in the background: each
answer is read when a test asks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

from tests.wire.answers import WAIT, Answer, Json, connection
from tests.wire.checked import book
from tests.wire.stateless_rules import (
    ALL,
    BOTH,
    GONE,
    META,
    NAMED,
    PAUSE,
    ROUNDS,
    SUBSCRIPTION,
    TASKS,
    TERMINAL,
    VERSION,
    Ident,
    Inputs,
    check_answer,
    retry,
    sentinel,
)


@dataclass(frozen=True)
class Reply:
    """What a request was answered: HTTP status, the notifications before, and the response."""

    status: int
    headers: Mapping[str, str]
    notifications: list[Json]
    response: Json
    rounds: list[Json] = field(default_factory=list[Json])
    """The `InputRequiredResult`s that were answered on the way."""

    @property
    def result(self) -> Json:
        """The result; `AssertionError` where it is an error."""
        assert "result" in self.response, self.response
        return self.response["result"]

    @property
    def refusal(self) -> tuple[int, int, str]:
        """HTTP status, code and words of an error; `AssertionError` where it is none."""
        assert "error" in self.response, self.response
        return self.status, self.response["error"]["code"], self.response["error"]["message"]

    @property
    def text(self) -> str:
        """The first text of a tool's result."""
        return self.result["content"][0]["text"]

    @property
    def task_id(self) -> str:
        """The id of the task that was made; `AssertionError` where none was."""
        assert self.result["resultType"] == "task", self.result
        return self.result["taskId"]


class Subscription:
    """An open `subscriptions/listen`: its notifications, as an async iterator, until it ends.

    `acknowledged` is the filter that the server agreed to; `ended` the graceful response, if one came.
    """

    def __init__(self, answer: Answer, ident: Ident, filter_: Json) -> None:
        self._answer = answer
        self._ident = ident
        self._filter = filter_
        self.acknowledged: Json = {}
        self.ended: Json | None = None

    async def open(self) -> Self:
        """Read the acknowledgment, which comes before all else."""
        first = await self._answer.next()
        assert first is not None
        assert first.get("method") == "notifications/subscriptions/acknowledged", first
        self._tagged(first["params"])
        self.acknowledged = first["params"]["notifications"]
        for name, granted in self.acknowledged.items():
            asked = self._filter.get(name)
            within = granted == asked or (
                isinstance(asked, list) and set(granted) <= set(cast("list[str]", asked))
            )
            assert within, f"{name} was not asked for: {first}"
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Json:
        message = await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self, seconds: float = WAIT) -> Json | None:
        """Return the next notification, `None` at the end; raise `TimeoutError`."""
        message = await self._answer.next(seconds)
        if message is None:
            return None
        if "method" not in message:
            self.ended = message
            self._tagged(message["result"])
            assert await self._answer.next(seconds) is None, "the response is not the last message"
            return None
        self._tagged(message["params"])
        assert self._wanted(message), f"not asked for: {message}"
        return message

    def cut(self) -> None:
        """Cancel the subscription by closing its stream."""
        self._answer.cut()

    def _tagged(self, params: Json) -> None:
        found = params.get("_meta", {}).get(SUBSCRIPTION)
        assert found == self._ident and type(found) is type(self._ident), params

    def _wanted(self, message: Json) -> bool:
        method, params = message["method"], message["params"]
        if method == "notifications/resources/updated":
            return any(params["uri"].startswith(uri) for uri in self._filter["resourceSubscriptions"])
        if method == "notifications/tasks":
            return params["taskId"] in self._filter["taskIds"]
        kind = method.removeprefix("notifications/").removesuffix("/list_changed")
        return self._filter.get(f"{kind}ListChanged") is True


class Stateless:
    """A client without a session; an async context manager.

    `capabilities` are those of each request; the tasks extension comes with `tasks`, which a single
    request may set otherwise. `log_level` asks for log messages.
    """

    def __init__(
        self,
        url: str,
        *,
        capabilities: Json | None = None,
        tasks: bool = True,
        authorization: str | None = None,
        log_level: str | None = None,
    ) -> None:
        self.url = url
        self.capabilities = ALL if capabilities is None else capabilities
        self.tasks = tasks
        self.authorization = authorization
        self.log_level = log_level
        self._idents = itertools.count(5000)
        self._book = book(VERSION)
        self._connection = connection()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    def ident(self) -> int:
        """Return a request id that this client has not used."""
        return next(self._idents)

    def meta(self, tasks: bool | None = None, **more: Any) -> Json:
        """Return the `_meta` of a request; `more` are further keys, without a prefix where one is known."""
        extensions: Json = {"extensions": {TASKS: {}}} if (self.tasks if tasks is None else tasks) else {}
        found: Json = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientInfo": {"name": "stateless", "version": "1"},
            f"{META}clientCapabilities": {**self.capabilities, **extensions},
        }
        if self.log_level is not None:
            found[f"{META}logLevel"] = self.log_level
        return {**found, **more}

    def request(
        self,
        method: str,
        params: Json | None = None,
        *,
        tasks: bool | None = None,
        ident: Ident | None = None,
    ) -> Json:
        """Return a request; keys of `_meta` in `params` go over those of `meta`."""
        given = params or {}
        meta = {**self.meta(tasks), **given.get("_meta", {})}
        return {
            "jsonrpc": "2.0",
            "id": self.ident() if ident is None else ident,
            "method": method,
            "params": {**given, "_meta": meta},
        }

    def fields(self, message: Json, headers: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Return the HTTP headers of a message; one of `headers` that is `None` is left out."""
        params = message.get("params", {})
        name = params.get(NAMED.get(message["method"], ""))
        found: dict[str, str | None] = {
            "Accept": BOTH,
            "Content-Type": "application/json",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": message["method"],
            "Mcp-Name": sentinel(name) if isinstance(name, str) else None,
            "Authorization": self.authorization,
        }
        for field_name, content in (headers or {}).items():
            found = {k: v for k, v in found.items() if k.lower() != field_name.lower()}
            found[field_name] = content
        return {k: v for k, v in found.items() if v is not None}

    async def send(
        self, body: bytes, headers: Mapping[str, str], asked: Json | None = None, verb: str = "POST"
    ) -> Answer:
        """Send any body with any headers; what comes back is checked as the answer to `asked`."""

        def look(message: Json) -> None:
            assert not ("method" in message and "id" in message), f"a server request: {message}"
            # A refusal that answers no request has no id.
            nameless = "error" in message and message.get("id") is None and asked is None
            self._book.check({**message, "id": 0} if nameless else message, asked)
            assert message.get("error", {}).get("code") not in GONE, message

        response = await self._connection.request(
            verb, self.url, data=body, headers=headers, allow_redirects=False
        )
        return Answer(response, look)

    async def begin(
        self,
        method: str,
        params: Json | None = None,
        *,
        tasks: bool | None = None,
        ident: Ident | None = None,
        headers: Mapping[str, str | None] | None = None,
        wrong: bool = False,
    ) -> Answer:
        """Send a request and return its answer, to be read by the caller and closed.

        `wrong` sends what the schema forbids.
        """
        message = self.request(method, params, tasks=tasks, ident=ident)
        return await self._begin(message, headers, wrong=wrong)

    async def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        tasks: bool | None = None,
        headers: Mapping[str, str | None] | None = None,
        seconds: float = WAIT,
        wrong: bool = False,
    ) -> Reply:
        """Send a request and return its reply; the arguments are those of `begin`."""
        message = self.request(method, params, tasks=tasks)
        async with await self._begin(message, headers, wrong=wrong) as answer:
            *notifications, response = await answer.rest(seconds)
        assert "method" not in response, response
        check_answer(message, answer, response)
        return Reply(answer.status, answer.headers, notifications, response)

    async def discover(self) -> Json:
        """Return the result of `server/discover`."""
        return (await self.ask("server/discover")).result

    async def call(
        self,
        tool: str,
        arguments: Json | None = None,
        *,
        tasks: bool | None = None,
        inputs: Inputs | None = None,
        progress: Ident | None = None,
        more: Json | None = None,
        headers: Mapping[str, str | None] | None = None,
        seconds: float = WAIT,
    ) -> Reply:
        """Call a tool and return the reply, whatever its `resultType`.

        With `inputs` each `InputRequiredResult` is answered by a retry, until another result comes.
        `progress` is a progress token; `more` are further params.
        """
        params: Json = {"name": tool, "arguments": arguments or {}, **(more or {})}
        if progress is not None:
            params["_meta"] = {**params.get("_meta", {}), "progressToken": progress}
        return await self.rounds(
            "tools/call", params, tasks=tasks, inputs=inputs, headers=headers, seconds=seconds
        )

    async def rounds(
        self,
        method: str,
        params: Json,
        *,
        tasks: bool | None = None,
        inputs: Inputs | None = None,
        headers: Mapping[str, str | None] | None = None,
        seconds: float = WAIT,
    ) -> Reply:
        """Send a request of any kind and answer what it asks for, as `call` does."""
        answered: list[Json] = []
        notifications: list[Json] = []
        given = params
        for _ in range(ROUNDS):
            reply = await self.ask(method, given, tasks=tasks, headers=headers, seconds=seconds)
            notifications += reply.notifications
            result = reply.response.get("result", {})
            if inputs is None or result.get("resultType") != "input_required":
                return Reply(reply.status, reply.headers, notifications, reply.response, answered)
            answered.append(result)
            given = {**params, **retry(result, inputs)}
        raise AssertionError(f"asked {ROUNDS} times: {answered[-1]}")

    async def get(self, task_id: str) -> Reply:
        """Send `tasks/get`."""
        return await self.ask("tasks/get", {"taskId": task_id})

    async def update(self, task_id: str, responses: Json, *, wrong: bool = False) -> Reply:
        """Send `tasks/update`."""
        params = {"taskId": task_id, "inputResponses": responses}
        return await self.ask("tasks/update", params, wrong=wrong)

    async def cancel(self, task_id: str) -> Reply:
        """Send `tasks/cancel`."""
        return await self.ask("tasks/cancel", {"taskId": task_id})

    async def reach(self, task_id: str, *statuses: str, seconds: float = WAIT) -> Json:
        """Poll until a task has one of the statuses and return it."""
        task: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    task = (await self.get(task_id)).result
                    if task["status"] in statuses:
                        return task
                    assert task["status"] not in TERMINAL, f"wanted {statuses}: {task}"
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            raise AssertionError(f"wanted {statuses} in {seconds} s: {task}") from None

    @asynccontextmanager
    async def listen(
        self, filter_: Json, *, tasks: bool | None = None, ident: Ident | None = None
    ) -> AsyncGenerator[Subscription]:
        """Open a subscription; closing its stream with the context cancels it.

        The filter is as in the text: `{"toolsListChanged": True, "taskIds": [..], ..}`.
        """
        ident = self.ident() if ident is None else ident
        params: Json = {"notifications": filter_}
        async with await self.begin("subscriptions/listen", params, tasks=tasks, ident=ident) as answer:
            assert answer.status == 200 and answer.is_stream, (answer.status, await answer.text())
            yield await Subscription(answer, ident, filter_).open()

    async def _begin(
        self, message: Json, headers: Mapping[str, str | None] | None, *, wrong: bool
    ) -> Answer:
        if not wrong:
            self._book.check(message)
        return await self.send(json.dumps(message).encode(), self.fields(message, headers), message)
