"""What the server of the stateless era says of itself, and the forms of its answers."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

VERSION: Final = "2026-07-28"
META: Final = "io.modelcontextprotocol/"
INFO: Final[Json] = {"name": "modern", "version": "3", "title": "Modern"}
INSTRUCTIONS: Final = "Ask a modern server."
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
CAPABILITIES: Final[Json] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
    "experimental": {"x": {"y": 1}},
}
FORM: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_NAME: Final[Json] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Your name?", "requestedSchema": FORM},
}
_SAMPLE: Final[Json] = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 9},
}
_URL: Final[Json] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in.", "url": "http://127.0.0.1/sign-in"},
}
# What a tool asks before it answers, by key.
QUESTIONS: Final[dict[str, Json]] = {
    "ask_name": {"name": _NAME},
    "sample": {"model": _SAMPLE},
    "where": {"roots": {"method": "roots/list"}},
    "both": {"name": _NAME, "model": _SAMPLE},
    "sign_in": {"url": _URL},
}
ASK: Final = QUESTIONS["ask_name"]
_FIRST: Final = ("echo", "count", "ask_name", "job", "must_job")
_SECOND: Final = ("chat", "touch", "never", "hold", "fail", "plain_echo")
PAGES: Final[list[list[Json]]] = [
    [{"name": name, "inputSchema": {"type": "object"}} for name in names] for names in (_FIRST, _SECOND)
]
_KEPT: Final[Json] = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"}
FIXED: Final[dict[str, Json]] = {
    "resources/list": {**_KEPT, "resources": [{"uri": "test://static", "name": "static"}]},
    "resources/templates/list": {
        **_KEPT,
        "resourceTemplates": [{"uriTemplate": "test://{key}", "name": "any"}],
    },
    "resources/read": {**_KEPT, "contents": [{"uri": "test://static", "text": "static"}]},
    "prompts/list": {**_KEPT, "prompts": [{"name": "greet"}]},
    "prompts/get": {
        "resultType": "complete",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Greet."}}],
    },
    "completion/complete": {
        "resultType": "complete",
        "completion": {"values": ["paris"], "total": 1, "hasMore": False},
    },
}


class Failed(Exception):
    """A request is answered with this error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})


def missing(capabilities: Json) -> Failed:
    """Return the refusal of a client that cannot what is needed."""
    return Failed(-32021, "Missing client capability", {"requiredCapabilities": capabilities})


def said(words: str) -> Json:
    """Return a tool's result."""
    return {"resultType": "complete", "content": [{"type": "text", "text": words}]}
