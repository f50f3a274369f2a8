"""What a fixture server serves, without a word of any SDK: tools, resources, prompts as plain JSON.

The same contents are served by two generations of the SDK, so that a difference between two test
runs is the generation's and not the tool's.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]

INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002


class ToolFailed(Exception):
    """A failure that the tool reports in its result (`isError`)."""


class RpcFailed(Exception):
    """A failure that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Call(Protocol):
    """What a tool may do while it runs."""

    @property
    def meta(self) -> Json:
        """The `_meta` of the request."""
        ...

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress where the caller asked for it."""
        ...

    def can(self, capability: str) -> bool:
        """Whether the client has declared a capability."""
        ...

    async def ask(self, method: str, params: Json, name: str | None = None) -> Json:
        """Send a request to the client, under a name for its id where one is given; return its result."""
        ...

    async def tell(self, method: str, params: Json, *, related: bool) -> None:
        """Send a notification, on the stream of the call (`related`) or on the session's own."""
        ...

    async def close_stream(self) -> None:
        """Drop the stream of the call where the transport has one and can resume it."""
        ...


Tool: TypeAlias = Callable[[Call, Json], Awaitable[str | list[Json]]]
Words: TypeAlias = Callable[[Json], list[Json]]
AskingWords: TypeAlias = Callable[[Call, Json], Awaitable[list[Json]]]


class RunLog:
    """One JSON line for each thing that happens to a tool run; the proof of at-most-once."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def line(self, event: str, tool: str, arguments: Json) -> None:
        """Append one line in one write, so that several processes can share the file."""
        if self._path is None:
            return
        entry = {"event": event, "tool": tool, "arguments": arguments, "pid": os.getpid()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


class Contents:
    """Everything that one server offers."""

    def __init__(self, name: str, page_size: int = 0) -> None:
        self.name = name
        self.page_size = page_size
        self.log = RunLog(None)
        self.listed: list[Json] = []
        self.resources: dict[str, tuple[Json, list[Json]]] = {}
        self.templates: list[tuple[Json, Callable[[str], list[Json] | None]]] = []
        self.prompts: dict[str, tuple[Json, Words]] = {}
        self.asking_prompts: dict[str, tuple[Json, AskingWords]] = {}
        self.prompts_change = False
        self.completions: list[str] = []
        self.subscribed: set[str] = set()
        self._runs: dict[str, Tool] = {}

    def tool(
        self, properties: Json | None = None, required: list[str] | None = None, schema: Json | None = None
    ) -> Callable[[Tool], Tool]:
        """Offer a coroutine function as a tool: its name and first docstring line are the tool's."""

        def offer(run: Tool) -> Tool:
            name = getattr(run, "__name__", "tool")
            shape = schema or {"type": "object", "properties": properties or {}, "required": required or []}
            self.add(name, (inspect.getdoc(run) or name).splitlines()[0], shape, run)
            return run

        return offer

    def add(self, name: str, description: str, schema: Json, run: Tool) -> None:
        """Offer a tool under a name."""
        self.listed.append({"name": name, "description": description, "inputSchema": schema})
        self._runs[name] = run

    def put(self, name: str, description: str, schema: Json, run: Tool) -> None:
        """Offer a tool under a name, in place of the one that has it."""
        self.listed = [tool for tool in self.listed if tool["name"] != name]
        self.add(name, description, schema, run)

    def tools_page(self, cursor: str | None) -> Json:
        """Return one page of `tools/list`; raise `RpcFailed` for a cursor that is none of ours."""
        begin = 0
        if cursor is not None:
            mark, _, number = cursor.partition(":")
            if mark != "page" or not number.isdecimal() or int(number) >= len(self.listed):
                raise RpcFailed(INVALID_PARAMS, "Unknown cursor")
            begin = int(number)
        end = begin + self.page_size if self.page_size else len(self.listed)
        page: Json = {"tools": self.listed[begin:end]}
        if end < len(self.listed):
            page["nextCursor"] = f"page:{end}"
        return page

    async def call(self, call: Call, name: str, arguments: Json) -> Json:
        """Run a tool and return its `CallToolResult`; raise `RpcFailed` where it is none."""
        run = self._runs.get(name)
        if run is None:
            raise RpcFailed(INVALID_PARAMS, f"Unknown tool: {name}")
        self.log.line("start", name, arguments)
        outcome = "cancelled"
        try:
            answer = await run(call, arguments)
            outcome = "end"
        except ToolFailed as failure:
            outcome = "failed"
            return {"content": [text(str(failure))], "isError": True}
        except Exception:
            outcome = "failed"
            raise
        finally:
            self.log.line(outcome, name, arguments)
        return {"content": [text(answer)] if isinstance(answer, str) else answer}

    def read(self, uri: str) -> Json:
        """Return the contents of a resource; raise `RpcFailed` where there is none."""
        if uri in self.resources:
            return {"contents": self.resources[uri][1]}
        for _, expand in self.templates:
            if found := expand(uri):
                return {"contents": found}
        raise RpcFailed(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})

    def listed_prompts(self) -> list[Json]:
        """Return the entries of all prompts."""
        return [entry for entry, _ in (*self.prompts.values(), *self.asking_prompts.values())]

    async def prompt(self, call: Call, name: str, arguments: Json) -> Json:
        """Return the messages of a prompt; raise `RpcFailed` where there is none."""
        if name in self.asking_prompts:
            entry, asking = self.asking_prompts[name]
            return {"description": entry["description"], "messages": await asking(call, arguments)}
        if name not in self.prompts:
            raise RpcFailed(INVALID_PARAMS, f"Unknown prompt: {name}")
        entry, words = self.prompts[name]
        missing = [
            a["name"] for a in entry.get("arguments", []) if a["required"] and a["name"] not in arguments
        ]
        if missing:
            raise RpcFailed(INVALID_PARAMS, f"Missing arguments: {', '.join(missing)}")
        return {"description": entry["description"], "messages": words(arguments)}

    def complete(self, begin: str) -> Json:
        """Return the completions that begin like the argument."""
        values = [word for word in self.completions if word.startswith(begin)]
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}


def text(words: str) -> Json:
    """Return a text block."""
    return {"type": "text", "text": words}


def said(content: Json) -> Json:
    """Return a prompt message of the user."""
    return {"role": "user", "content": content}
