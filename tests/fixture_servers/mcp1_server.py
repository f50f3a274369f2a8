"""The fixture contents on the last release of `mcp` 1.x, whose virtual environment runs this module."""

from __future__ import annotations

from typing import Any

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import McpError
from mcp.shared.message import ServerMessageMetadata

from tests.fixture_servers import common_tools, serving
from tests.fixture_servers.contents import Contents, Json, RpcFailed

RESULTS: dict[str, Any] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


class Served(Server[Any, Any]):
    """A server that announces what it really does; the SDK leaves these to the initialization options."""

    prompts_change = False

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        """Announce changes of the lists, and subscriptions."""
        changes = NotificationOptions(tools_changed=True, prompts_changed=self.prompts_change)
        options = super().create_initialization_options(changes)
        if options.capabilities.resources is not None:
            options.capabilities.resources.subscribe = True
        return options


class Named(str):
    """A request id in place of the session's next number; the SDK adds 1 to it for the one after."""

    __slots__ = ("number",)
    number: int

    def __add__(self, one: object) -> Any:
        """Return the session's next number."""
        return self.number


class Call:
    """A tool's way back to its caller."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._session = context.session

    @property
    def meta(self) -> Json:
        """The `_meta` of the request."""
        meta = self._context.meta
        return meta.model_dump(by_alias=True, exclude_none=True) if meta else {}

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress where the caller asked for it."""
        token = self._context.meta.progressToken if self._context.meta else None
        if token is not None:
            related = str(self._context.request_id)
            await self._session.send_progress_notification(token, done, total, message, related)

    def can(self, capability: str) -> bool:
        """Whether the client has declared a capability."""
        return getattr(self._session.client_params.capabilities, capability) is not None

    async def ask(self, method: str, params: Json, name: str | None = None) -> Json:
        """Send a request to the client and return its result."""
        # Two requests of one session that wait at the same time must not have one id.
        if name is not None and name not in self._session._response_streams:
            ident = Named(name)
            ident.number = self._session._request_id
            self._session._request_id = ident
        request = types.ServerRequest.model_validate({"method": method, "params": params})
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        answer = await self._session.send_request(request, RESULTS[method], metadata=related)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def tell(self, method: str, params: Json, *, related: bool) -> None:
        """Send a notification."""
        notification = types.ServerNotification.model_validate({"method": method, "params": params})
        await self._session.send_notification(notification, self._context.request_id if related else None)

    async def close_stream(self) -> None:
        """Drop the stream of the call where the transport can resume it."""
        if self._context.close_sse_stream:
            await self._context.close_sse_stream()


def build(contents: Contents) -> Served:
    """Return a server of the contents."""
    server = Served(contents.name, "1.0.0", "A fixture server.")
    server.prompts_change = contents.prompts_change
    handlers = server.request_handlers

    async def call_tool(request: types.CallToolRequest) -> Any:
        call = Call(server.request_context)
        try:
            result = await contents.call(call, request.params.name, request.params.arguments or {})
        except RpcFailed as failure:
            raise _error(failure) from failure
        return _result(types.CallToolResult, result)

    async def list_tools(request: types.ListToolsRequest) -> Any:
        try:
            page = contents.tools_page(request.params.cursor if request.params else None)
        except RpcFailed as failure:
            raise _error(failure) from failure
        return _result(types.ListToolsResult, page)

    handlers[types.CallToolRequest] = call_tool
    handlers[types.ListToolsRequest] = list_tools
    _add_resources(server, contents)
    _add_prompts(server, contents)
    return server


def _add_resources(server: Served, contents: Contents) -> None:
    async def list_resources(_: Any) -> Any:
        return _result(
            types.ListResourcesResult, {"resources": [e for e, _ in contents.resources.values()]}
        )

    async def list_templates(_: Any) -> Any:
        return _result(
            types.ListResourceTemplatesResult, {"resourceTemplates": [e for e, _ in contents.templates]}
        )

    async def read(request: types.ReadResourceRequest) -> Any:
        try:
            found = contents.read(str(request.params.uri))
        except RpcFailed as failure:
            raise _error(failure) from failure
        return _result(types.ReadResourceResult, found)

    async def subscribe(request: types.SubscribeRequest) -> Any:
        contents.subscribed.add(str(request.params.uri))
        return _result(types.EmptyResult, {})

    async def unsubscribe(request: types.UnsubscribeRequest) -> Any:
        contents.subscribed.discard(str(request.params.uri))
        return _result(types.EmptyResult, {})

    server.request_handlers |= {
        types.ListResourcesRequest: list_resources,
        types.ListResourceTemplatesRequest: list_templates,
        types.ReadResourceRequest: read,
        types.SubscribeRequest: subscribe,
        types.UnsubscribeRequest: unsubscribe,
    }


def _add_prompts(server: Served, contents: Contents) -> None:
    async def list_prompts(_: Any) -> Any:
        return _result(types.ListPromptsResult, {"prompts": contents.listed_prompts()})

    async def get_prompt(request: types.GetPromptRequest) -> Any:
        try:
            call = Call(server.request_context)
            found = await contents.prompt(call, request.params.name, request.params.arguments or {})
        except RpcFailed as failure:
            raise _error(failure) from failure
        return _result(types.GetPromptResult, found)

    async def complete(request: types.CompleteRequest) -> Any:
        return _result(types.CompleteResult, contents.complete(request.params.argument.value))

    async def set_level(_: Any) -> Any:
        return _result(types.EmptyResult, {})

    server.request_handlers |= {
        types.ListPromptsRequest: list_prompts,
        types.GetPromptRequest: get_prompt,
        types.CompleteRequest: complete,
        types.SetLevelRequest: set_level,
    }


def _error(failure: RpcFailed) -> McpError:
    return McpError(types.ErrorData(code=failure.code, message=failure.message, data=failure.data))


def _result(kind: Any, answer: Json) -> Any:
    return types.ServerResult(kind.model_validate(answer))


if __name__ == "__main__":
    chosen = serving.arguments(__doc__)
    made = common_tools.make(chosen.page_size, chosen.extra_tools)
    serving.serve(build(made), made, chosen)
