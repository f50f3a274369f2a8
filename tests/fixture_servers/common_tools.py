"""The tools that both generations of the fixture server offer, each for one thing a proxy meets."""

from __future__ import annotations

import json
from functools import partial

import anyio

from tests.fixture_servers.contents import Call, Contents, Json, RpcFailed, ToolFailed, said, text

WATCHED = "test://watched"
NAME_FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def make(page_size: int = 0, extra_tools: int = 0) -> Contents:
    """Return the contents; `extra_tools` more tools that only echo, for pages of a long list."""
    contents = Contents("fixture", page_size)
    _waiting(contents)
    _failing(contents)
    _asking(contents)
    _telling(contents)
    _resources_and_prompts(contents)
    for number in range(extra_tools):
        contents.add(f"extra_{number:03}", "Echo the arguments.", {"type": "object"}, _echo)
    return contents


async def _echo(call: Call, arguments: Json) -> str:
    return json.dumps(arguments)


def _waiting(contents: Contents) -> None:
    @contents.tool({"seconds": {"type": "number"}, "steps": {"type": "integer"}})
    async def slow_count(call: Call, arguments: Json) -> str:
        """Take some seconds, in steps of half a second or as many as are asked for, with progress."""
        seconds = float(arguments.get("seconds", 10))
        steps = int(arguments.get("steps", max(1, round(seconds * 2))))
        for step in range(steps):
            await call.progress(step, steps, f"step {step} of {steps}")
            await anyio.sleep(seconds / steps)
        await call.progress(steps, steps, "done")
        return f"Counted for {seconds:g} seconds."

    @contents.tool()
    async def never(call: Call, arguments: Json) -> str:
        """Run until cancelled."""
        await anyio.sleep_forever()
        return ""

    @contents.tool({"kib": {"type": "integer"}})
    async def large(call: Call, arguments: Json) -> str:
        """Return a text of so many KiB."""
        return "0123456789abcdef" * (int(arguments.get("kib", 256)) * 64)


def _failing(contents: Contents) -> None:
    @contents.tool()
    async def fail(call: Call, arguments: Json) -> str:
        """Fail with isError."""
        raise ToolFailed("This tool always fails.")

    @contents.tool()
    async def protocol_error(call: Call, arguments: Json) -> str:
        """Fail with a JSON-RPC error that carries data."""
        raise RpcFailed(-32050, "This tool answers with a protocol error.", {"detail": [1, "two", None]})


def _asking(contents: Contents) -> None:
    async def name_of(call: Call, question: str) -> str:
        answer = await call.ask("elicitation/create", {"message": question, "requestedSchema": NAME_FORM})
        accepted = answer["action"] == "accept"
        return str(answer["content"]["name"]) if accepted else f"nobody ({answer['action']})"

    @contents.tool({"question": {"type": "string"}})
    async def ask_name(call: Call, arguments: Json) -> str:
        """Elicit a name by a form and greet."""
        name = await name_of(call, str(arguments.get("question", "What is your name?")))
        return f"Hello, {name}!"

    @contents.tool()
    async def two_questions(call: Call, arguments: Json) -> str:
        """Elicit two names at once and greet both."""
        names: dict[str, str] = {}

        async def keep(which: str) -> None:
            names[which] = await name_of(call, f"What is the {which} name?")

        async with anyio.create_task_group() as both:
            for which in ("first", "second"):
                both.start_soon(partial(keep, which))
        return f"Hello, {names['first']} and {names['second']}!"

    @contents.tool({"url": {"type": "string"}})
    async def elicit_url(call: Call, arguments: Json) -> str:
        """Elicit by a URL and tell that it is complete."""
        url = str(arguments.get("url", "http://127.0.0.1/sign-in"))
        params: Json = {
            "mode": "url",
            "message": "Please sign in.",
            "url": url,
            "elicitationId": "elicitation-1",
        }
        answer = await call.ask("elicitation/create", params)
        await call.tell(
            "notifications/elicitation/complete", {"elicitationId": "elicitation-1"}, related=True
        )
        return f"The answer was {answer['action']}."

    @contents.tool({"text": {"type": "string"}}, ["text"])
    async def summarise(call: Call, arguments: Json) -> str:
        """Sample a summary of a text."""
        message = {"role": "user", "content": text(f"Summarise: {arguments['text']}")}
        answer = await call.ask("sampling/createMessage", {"messages": [message], "maxTokens": 100})
        return str(answer["content"]["text"])

    @contents.tool()
    async def roots(call: Call, arguments: Json) -> str:
        """List the client's roots."""
        answer = await call.ask("roots/list", {})
        return ", ".join(root["uri"] for root in answer["roots"])


def _telling(contents: Contents) -> None:
    @contents.tool()
    async def echo_meta(call: Call, arguments: Json) -> str:
        """Return the _meta of the request as JSON."""
        return json.dumps(call.meta, sort_keys=True)

    @contents.tool({"n": {"type": "integer"}})
    async def log_lines(call: Call, arguments: Json) -> str:
        """Send so many log notifications."""
        count = int(arguments.get("n", 3))
        for number in range(count):
            entry: Json = {"level": "info", "logger": "fixture", "data": f"line {number}"}
            await call.tell("notifications/message", entry, related=True)
        return f"Logged {count} lines."

    @contents.tool({"name": {"type": "string"}}, ["name"])
    async def add_tool(call: Call, arguments: Json) -> str:
        """Offer one tool more and tell that the list has changed."""
        contents.add(str(arguments["name"]), "Echo the arguments.", {"type": "object"}, _echo)
        await call.tell("notifications/tools/list_changed", {}, related=False)
        return f"Added {arguments['name']}."

    @contents.tool({"uri": {"type": "string"}})
    async def touch(call: Call, arguments: Json) -> str:
        """Tell that a resource has changed, where it is subscribed to."""
        uri = str(arguments.get("uri", WATCHED))
        if uri not in contents.subscribed:
            return "Nobody watches."
        await call.tell("notifications/resources/updated", {"uri": uri}, related=False)
        return "Told."


def _resources_and_prompts(contents: Contents) -> None:
    for uri, words in {"test://static": "A static text.", WATCHED: "A watched text."}.items():
        entry = {
            "uri": uri,
            "name": uri.removeprefix("test://"),
            "description": words,
            "mimeType": "text/plain",
        }
        contents.resources[uri] = (entry, [{"uri": uri, "mimeType": "text/plain", "text": words}])
    contents.prompts["greet"] = (
        {"name": "greet", "description": "Greet.", "arguments": [{"name": "name", "required": True}]},
        lambda arguments: [said(text(f"Say hello to {arguments['name']}."))],
    )
    contents.completions = ["paris", "park", "party"]
