"""The fixture contents on `mcp` 2.x, which speaks both eras."""

from __future__ import annotations

import warnings
from typing import Any, cast

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, TypeAdapter

from tests.fixture_servers import common_tools, serving
from tests.fixture_servers.contents import Contents, Json, RpcFailed

Context = ServerRequestContext[Any, Any]

QUESTIONS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
NOTIFICATION: TypeAdapter[types.ServerNotification] = TypeAdapter(types.ServerNotification)


class Served(Server[Any]):
    """A server that announces what it really does; the SDK leaves these to the initialization options."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        """Announce changes of the tool list."""
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


class Call:
    """A tool's way back to its caller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._session = context.session

    @property
    def meta(self) -> Json:
        """The `_meta` of the request."""
        params = self._context.params or {}
        return cast("Json", params.get("_meta") or {})

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress where the caller asked for it."""
        await self._session.report_progress(done, total, message)

    async def ask(self, method: str, params: Json) -> Json:
        """Send a request to the client and return its result."""
        request, result = QUESTIONS[method]
        question = cast("types.ServerRequest", request.model_validate({"method": method, "params": params}))
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        answer = await self._session.send_request(question, result, metadata=related)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def tell(self, method: str, params: Json, *, related: bool) -> None:
        """Send a notification."""
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
            return await contents.call(Call(context), params.name, params.arguments or {})
        except RpcFailed as failure:
            raise _error(failure) from failure

    async def list_tools(context: Context, params: types.PaginatedRequestParams) -> Json:
        try:
            return contents.tools_page(params.cursor)
        except RpcFailed as failure:
            raise _error(failure) from failure

    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    _add_resources(server, contents)
    _add_prompts(server, contents)
    return server


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

    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)


def _add_prompts(server: Served, contents: Contents) -> None:
    async def list_prompts(context: Context, params: types.PaginatedRequestParams) -> Json:
        return {"prompts": [entry for entry, _ in contents.prompts.values()]}

    async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> Json:
        try:
            return contents.prompt(params.name, dict(params.arguments or {}))
        except RpcFailed as failure:
            raise _error(failure) from failure

    async def complete(context: Context, params: types.CompleteRequestParams) -> Json:
        return contents.complete(params.argument.value)

    async def set_level(context: Context, params: types.SetLevelRequestParams) -> Json:
        return {}

    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def _error(failure: RpcFailed) -> MCPError:
    return MCPError(failure.code, failure.message, failure.data)


if __name__ == "__main__":
    # Sampling, roots and logging are deprecated from 2026-07-28 on; a legacy server uses them all the same.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    chosen = serving.arguments(__doc__)
    made = common_tools.make(chosen.page_size, chosen.extra_tools)
    serving.serve(build(made), made, chosen)
