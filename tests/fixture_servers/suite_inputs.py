"""The tools and the prompt that the scenarios of protocol 2026-07-28 call by name.

The scenarios ask for what a stateless server would do; this is what a server of the handshake era has
in its place: it asks the client in the middle of the call.
"""

from __future__ import annotations

import json
from functools import partial

import anyio

from tests.fixture_servers.contents import Call, Contents, Json, said, text
from tests.fixture_servers.suite_tasks import NAME, elicit

CONFIRMED: Json = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def add(contents: Contents) -> None:
    """Offer the tools and the prompt."""
    _single(contents)
    _several(contents)
    _picking(contents)
    _diagnostic(contents)
    _changing(contents)
    _prompt(contents)


def form(field: str) -> Json:
    """Return a schema that asks for one text."""
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


async def sample(call: Call, name: str, words: str, tokens: int = 100) -> str:
    """Ask the client's model under a name and return its text."""
    message = {"role": "user", "content": text(words)}
    params: Json = {"messages": [message], "maxTokens": tokens}
    return str((await call.ask("sampling/createMessage", params, name))["content"]["text"])


async def roots(call: Call, name: str) -> str:
    """Ask for the client's roots under a name."""
    return ", ".join(root["uri"] for root in (await call.ask("roots/list", {}, name))["roots"])


def _single(contents: Contents) -> None:
    @contents.tool()
    async def test_input_required_result_elicitation(call: Call, arguments: Json) -> str:
        """Elicit a name."""
        answer = await elicit(call, "user_name", "What is your name?", NAME)
        return f"Hello, {answer.get('content', {}).get('name', 'nobody')}!"

    @contents.tool()
    async def test_input_required_result_sampling(call: Call, arguments: Json) -> str:
        """Ask the model."""
        return await sample(call, "capital_question", "What is the capital of France?")

    @contents.tool()
    async def test_input_required_result_list_roots(call: Call, arguments: Json) -> str:
        """List the client's roots."""
        return f"Roots: {await roots(call, 'client_roots')}"

    @contents.tool()
    async def test_input_required_result_request_state(call: Call, arguments: Json) -> str:
        """Elicit a confirmation."""
        answer = await elicit(call, "confirm", "Please confirm", CONFIRMED)
        return f"state-ok: {answer['action']}"

    @contents.tool()
    async def test_input_required_result_tampered_state(call: Call, arguments: Json) -> str:
        """Elicit a confirmation whose state may be tampered with."""
        answer = await elicit(call, "confirm", "Please confirm", CONFIRMED)
        return f"state-ok: {answer['action']}"


def _several(contents: Contents) -> None:
    @contents.tool()
    async def test_input_required_result_multiple_inputs(call: Call, arguments: Json) -> str:
        """Elicit, sample and list roots at once."""
        found: Json = {}

        async def name() -> None:
            found["name"] = (await elicit(call, "user_name", "What is your name?", NAME)).get("content")

        async def greeting() -> None:
            found["greeting"] = await sample(call, "greeting", "Generate a greeting", 50)

        async def places() -> None:
            found["roots"] = await roots(call, "client_roots")

        async with anyio.create_task_group() as questions:
            for question in (name, greeting, places):
                questions.start_soon(question)
        return json.dumps(found, sort_keys=True)

    @contents.tool()
    async def test_input_required_result_multi_round(call: Call, arguments: Json) -> str:
        """Elicit a name, then a colour."""
        name = await elicit(call, "step1", "Step 1: What is your name?", NAME)
        colour = await elicit(call, "step2", "Step 2: What is your favorite color?", form("color"))
        return json.dumps([name.get("content"), colour.get("content")])


def _picking(contents: Contents) -> None:
    @contents.tool()
    async def test_input_required_result_capabilities(call: Call, arguments: Json) -> str:
        """Ask all that the client said it can answer."""
        answers: Json = {}

        async def ask(kind: str) -> None:
            if kind == "sampling":
                answers[kind] = await sample(call, "sampled", "Say something.")
            else:
                answers[kind] = (await elicit(call, "elicited", "Say something.", NAME))["action"]

        async with anyio.create_task_group() as questions:
            for kind in ("sampling", "elicitation"):
                if call.can(kind):
                    questions.start_soon(partial(ask, kind))
        return json.dumps(answers, sort_keys=True)


def _diagnostic(contents: Contents) -> None:
    @contents.tool()
    async def test_missing_capability(call: Call, arguments: Json) -> str:
        """Sample, whatever the client said it can do."""
        return await sample(call, "needed", "Say something.")

    @contents.tool()
    async def test_streaming_elicitation(call: Call, arguments: Json) -> str:
        """Elicit in the middle of a call."""
        await call.progress(1, 2, "about to ask")
        answer = await elicit(call, "user_name", "What is your name?", NAME)
        return f"The answer was {answer['action']}."

    @contents.tool()
    async def test_logging_tool(call: Call, arguments: Json) -> str:
        """Log at each level."""
        for level in ("debug", "info", "warning", "error"):
            entry = {"level": level, "data": f"a line of {level}"}
            await call.tell("notifications/message", entry, related=True)
        return "The tool has logged."

    region: Json = {"type": "string", "description": "Shown in a header.", "x-mcp-header": "Region"}

    @contents.tool({"region": region, "query": {"type": "string"}}, ["region"])
    async def test_custom_header_tool(call: Call, arguments: Json) -> str:
        """Take an argument that is repeated in a header."""
        return f"Asked in {arguments['region']}."


def _changing(contents: Contents) -> None:
    async def changed(call: Call, arguments: Json) -> str:
        return "I was not here before."

    @contents.tool()
    async def test_trigger_tool_change(call: Call, arguments: Json) -> str:
        """Change the list of tools and tell of it."""
        contents.put("test_changed_tool", "Offered after a change.", {"type": "object"}, changed)
        await call.tell("notifications/tools/list_changed", {}, related=False)
        return "The tools have changed."

    @contents.tool()
    async def test_trigger_prompt_change(call: Call, arguments: Json) -> str:
        """Change the list of prompts and tell of it."""
        entry: Json = {"name": "test_changed_prompt", "description": "Offered after a change."}
        contents.prompts["test_changed_prompt"] = (entry, lambda _: [said(text("I was not here before."))])
        await call.tell("notifications/prompts/list_changed", {}, related=False)
        return "The prompts have changed."

    contents.prompts_change = True


def _prompt(contents: Contents) -> None:
    async def words(call: Call, arguments: Json) -> list[Json]:
        answer = await elicit(call, "user_context", "What context should the prompt use?", form("context"))
        return [said(text(f"Use this: {answer.get('content', {}).get('context', 'nothing')}"))]

    entry: Json = {"name": "test_input_required_result_prompt", "description": "Asks for a context."}
    contents.asking_prompts[entry["name"]] = (entry, words)
