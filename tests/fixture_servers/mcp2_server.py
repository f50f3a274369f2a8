"""The fixture contents on `mcp` 2.x, which speaks both eras."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, cast

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, TypeAdapter

from tests.fixture_servers import common_tools, serving
from tests.fixture_servers.contents import Contents, Json, RpcFailed

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, Any], Awaitable[Json]]
STATELESS = "2026-07-28"

QUESTIONS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
# Results of the stateless era that say how long they may be kept.
CACHED = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
BUS = InMemorySubscriptionBus()
EVENTS: dict[str, Callable[[Json], ServerEvent]] = {
    "notifications/tools/list_changed": lambda _: ToolsListChanged(),
    "notifications/prompts/list_changed": lambda _: PromptsListChanged(),
    "notifications/resources/updated": lambda params: ResourceUpdated(params["uri"]),
}
NOTIFICATION: TypeAdapter[types.ServerNotification] = TypeAdapter(types.ServerNotification)


class Served(Server[Any]):
    """A server that announces what it really does; the SDK leaves these to the initialization options."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        """Announce changes of the tool list."""
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


class NotAnswered(Exception):
    """A question that the client is asked by the result, since the era knows no server requests."""


class Call:
    """A tool's way back to its caller.

    In the stateless era a tool runs from its begin in each round, and its questions are answered from
    what the client has sent with the request.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._session = context.session
        self._stateless = context.protocol_version == STATELESS
        params = context.params or {}
        self._answers: Json = json.loads(params.get("requestState") or "{}")
        self._answers |= params.get("inputResponses") or {}
        self._asked = 0
        self._open: Json = {}

    @property
    def meta(self) -> Json:
        """The `_meta` of the request."""
        params = self._context.params or {}
        return cast("Json", params.get("_meta") or {})

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress where the caller asked for it."""
        await self._session.report_progress(done, total, message)

    def can(self, capability: str) -> bool:
        """Whether the client has declared a capability."""
        return self._session.check_client_capability(
            types.ClientCapabilities.model_validate({capability: {}})
        )

    async def ask(self, method: str, params: Json, name: str | None = None) -> Json:
        """Send a request to the client and return its result."""
        if self._stateless:
            return self._answer(method, params, name)
        request, result = QUESTIONS[method]
        question = cast("types.ServerRequest", request.model_validate({"method": method, "params": params}))
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        answer = await self._session.send_request(question, result, metadata=related)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    def _answer(self, method: str, params: Json, name: str | None) -> Json:
        self._asked += 1
        key = name or f"question-{self._asked}"
        if key not in self._answers:
            self._open[key] = {"method": method, "params": params}
            raise NotAnswered(key)
        return self._answers[key]

    async def whole(self, run: Awaitable[Json]) -> Json:
        """Return the result of a run, or what it asks for."""
        try:
            return await run
        except Exception:
            if not self._open:
                raise
        state = json.dumps(self._answers)
        return {"resultType": "input_required", "inputRequests": self._open, "requestState": state}

    async def tell(self, method: str, params: Json, *, related: bool) -> None:
        """Send a notification; in the stateless era a change goes to those who listen."""
        if self._stateless and not related:
            await BUS.publish(EVENTS[method](params))
            return
        notification = NOTIFICATION.validate_python({"method": method, "params": params})
        await self._session.send_notification(notification, self._context.request_id if related else None)

    async def close_stream(self) -> None:
        """Drop the stream of the call where the transport can resume it."""
        if self._context.close_sse_stream:
            await self._context.close_sse_stream()


def build(contents: Contents) -> Served:
    """Return a server of the contents."""
    server = Served(contents.name, version="1.0.0", instructions="A fixture server.")

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> Json:
        try:
            call = Call(context)
            return await call.whole(contents.call(call, params.name, params.arguments or {}))
        except RpcFailed as failure:
            raise _error(failure) from failure

    async def list_tools(context: Context, params: types.PaginatedRequestParams) -> Json:
        try:
            return contents.tools_page(params.cursor)
        except RpcFailed as failure:
            raise _error(failure) from failure

    _offer(server, "tools/call", types.CallToolRequestParams, call_tool)
    _offer(server, "tools/list", types.PaginatedRequestParams, list_tools)
    _add_resources(server, contents)
    _add_prompts(server, contents)
    _add_listening(server, contents)
    return server


def _add_listening(server: Served, contents: Contents) -> None:
    serve = ListenHandler(BUS)

    async def listen(context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        contents.subscribed |= set(params.notifications.resource_subscriptions or [])
        return await serve(context, params)

    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, listen)


def _add_resources(server: Served, contents: Contents) -> None:
    async def list_resources(context: Context, params: types.PaginatedRequestParams) -> Json:
        return {"resources": [entry for entry, _ in contents.resources.values()]}

    async def list_templates(context: Context, params: types.PaginatedRequestParams) -> Json:
        return {"resourceTemplates": [entry for entry, _ in contents.templates]}

    async def read(context: Context, params: types.ReadResourceRequestParams) -> Json:
        try:
            return contents.read(params.uri)
        except RpcFailed as failure:
            raise _error(failure) from failure

    async def subscribe(context: Context, params: types.SubscribeRequestParams) -> Json:
        contents.subscribed.add(params.uri)
        return {}

    async def unsubscribe(context: Context, params: types.UnsubscribeRequestParams) -> Json:
        contents.subscribed.discard(params.uri)
        return {}

    _offer(server, "resources/list", types.PaginatedRequestParams, list_resources)
    _offer(server, "resources/templates/list", types.PaginatedRequestParams, list_templates)
    _offer(server, "resources/read", types.ReadResourceRequestParams, read)
    _offer(server, "resources/subscribe", types.SubscribeRequestParams, subscribe)
    _offer(server, "resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


def _add_prompts(server: Served, contents: Contents) -> None:
    async def list_prompts(context: Context, params: types.PaginatedRequestParams) -> Json:
        return {"prompts": contents.listed_prompts()}

    async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> Json:
        try:
            call = Call(context)
            return await call.whole(contents.prompt(call, params.name, dict(params.arguments or {})))
        except RpcFailed as failure:
            raise _error(failure) from failure

    async def complete(context: Context, params: types.CompleteRequestParams) -> Json:
        return contents.complete(params.argument.value)

    async def set_level(context: Context, params: types.SetLevelRequestParams) -> Json:
        return {}

    _offer(server, "prompts/list", types.PaginatedRequestParams, list_prompts)
    _offer(server, "prompts/get", types.GetPromptRequestParams, get_prompt)
    _offer(server, "completion/complete", types.CompleteRequestParams, complete)
    _offer(server, "logging/setLevel", types.SetLevelRequestParams, set_level)


def _offer(server: Served, method: str, params: type[Any], run: Handler) -> None:
    async def stamped(context: Context, given: Any) -> Json:
        hints: Json = {"ttlMs": 0, "cacheScope": "private"} if method in CACHED else {}
        result = await run(context, given)
        stateless = context.protocol_version == STATELESS
        return {"resultType": "complete", **hints, **result} if stateless else result

    server.add_request_handler(method, params, stamped)


def _error(failure: RpcFailed) -> MCPError:
    return MCPError(failure.code, failure.message, failure.data)


if __name__ == "__main__":
    # Sampling, roots and logging are deprecated from 2026-07-28 on; a legacy server uses them all the same.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    chosen = serving.arguments(__doc__)
    made = common_tools.make(chosen.page_size, chosen.extra_tools)
    serving.serve(build(made), made, chosen)
