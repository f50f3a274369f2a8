"""The tools, resources and prompts that the scenarios of the conformance suites call by name.

The names, arguments and answers are those that the scenarios' own descriptions ask a server for.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import anyio

from tests.fixture_servers import suite_inputs, suite_tasks
from tests.fixture_servers.contents import Call, Contents, Json, ToolFailed, Words, said, text

PAUSE = 0.05
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make() -> Contents:
    """Return the contents."""
    contents = Contents("conformance-fixture")
    _content_tools(contents)
    _stream_tools(contents)
    _asking_tools(contents)
    _schema_tool(contents)
    _resources(contents)
    _prompts(contents)
    suite_tasks.add(contents)
    suite_inputs.add(contents)
    return contents


def png() -> str:
    """Return a PNG of one red pixel in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\x00\xff\x00\x00")
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return base64.b64encode(image).decode()


def wav() -> str:
    """Return a WAV of eight silent samples in base64."""
    samples = b"\x80" * 8
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return base64.b64encode(struct.pack("<4sI", b"RIFF", len(body)) + body).decode()


def image() -> Json:
    """Return an image block."""
    return {"type": "image", "data": png(), "mimeType": "image/png"}


def embedded(uri: str, mime_type: str, words: str) -> Json:
    """Return an embedded text resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def _content_tools(contents: Contents) -> None:
    @contents.tool()
    async def test_simple_text(call: Call, arguments: Json) -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @contents.tool()
    async def test_image_content(call: Call, arguments: Json) -> list[Json]:
        """Return an image."""
        return [image()]

    @contents.tool()
    async def test_audio_content(call: Call, arguments: Json) -> list[Json]:
        """Return a sound."""
        return [{"type": "audio", "data": wav(), "mimeType": "audio/wav"}]

    @contents.tool()
    async def test_embedded_resource(call: Call, arguments: Json) -> list[Json]:
        """Return an embedded resource."""
        return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @contents.tool()
    async def test_multiple_content_types(call: Call, arguments: Json) -> list[Json]:
        """Return a text, an image and a resource."""
        mixed = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return [text("Multiple content types test:"), image(), mixed]

    @contents.tool()
    async def test_error_handling(call: Call, arguments: Json) -> str:
        """Fail with isError."""
        raise ToolFailed("This tool intentionally returns an error for testing")


def _stream_tools(contents: Contents) -> None:
    @contents.tool()
    async def test_tool_with_logging(call: Call, arguments: Json) -> str:
        """Send three log notifications."""
        for number, words in enumerate(("started", "processing data", "completed")):
            if number:
                await anyio.sleep(PAUSE)
            prefix = "Tool" if words == "processing data" else "Tool execution"
            await call.tell(
                "notifications/message", {"level": "info", "data": f"{prefix} {words}"}, related=True
            )
        return "The tool has logged."

    @contents.tool()
    async def test_tool_with_progress(call: Call, arguments: Json) -> str:
        """Report progress three times."""
        for done in (0, 50, 100):
            await call.progress(done, 100)
            await anyio.sleep(PAUSE)
        return "The tool has made progress."

    @contents.tool()
    async def test_reconnection(call: Call, arguments: Json) -> str:
        """Drop the stream of the call, then answer on the one that the client opens."""
        await call.close_stream()
        await anyio.sleep(4 * PAUSE)
        return "The answer came after the reconnection."


def _asking_tools(contents: Contents) -> None:
    async def elicit(call: Call, message: str, properties: Json, required: list[str] | None = None) -> Json:
        schema: Json = {"type": "object", "properties": properties, "required": required or []}
        return await call.ask("elicitation/create", {"message": message, "requestedSchema": schema})

    def told(answer: Json, lead: str) -> str:
        return f"{lead}: action={answer['action']}, content={json.dumps(answer.get('content', {}))}"

    @contents.tool({"prompt": {"type": "string"}}, ["prompt"])
    async def test_sampling(call: Call, arguments: Json) -> str:
        """Sample from the client's model."""
        message = {"role": "user", "content": text(str(arguments["prompt"]))}
        answer = await call.ask("sampling/createMessage", {"messages": [message], "maxTokens": 100})
        return f"LLM response: {answer['content']['text']}"

    @contents.tool({"message": {"type": "string"}}, ["message"])
    async def test_elicitation(call: Call, arguments: Json) -> str:
        """Elicit a name and an address."""
        fields: Json = {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        }
        return told(await elicit(call, str(arguments["message"]), fields, list(fields)), "User response")

    @contents.tool()
    async def test_elicitation_sep1034_defaults(call: Call, arguments: Json) -> str:
        """Elicit with a default of each primitive type."""
        fields: Json = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        return told(await elicit(call, "Please check the defaults.", fields), "Elicitation completed")

    @contents.tool()
    async def test_elicitation_sep1330_enums(call: Call, arguments: Json) -> str:
        """Elicit with each kind of choice."""
        plain = [f"option{n}" for n in (1, 2, 3)]
        titled = [
            {"const": f"value{n}", "title": f"{t} Option"}
            for n, t in enumerate(("First", "Second", "Third"), 1)
        ]
        fields: Json = {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        }
        return told(await elicit(call, "Please choose.", fields), "Elicitation completed")


def _schema_tool(contents: Contents) -> None:
    words: Json = {"type": "string"}
    schema: Json = {
        "$schema": DIALECT,
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": words, "city": words},
            }
        },
        "properties": {
            "name": words,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": words,
            "email": words,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }

    @contents.tool(schema=schema)
    async def json_schema_2020_12_tool(call: Call, arguments: Json) -> str:
        """Tool with JSON Schema 2020-12 features."""
        return json.dumps(arguments)


def _resources(contents: Contents) -> None:
    offered: dict[str, tuple[str, Json]] = {
        "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
        "test://static-binary": ("image/png", {"blob": png()}),
        "test://watched-resource": ("text/plain", {"text": "A resource to watch."}),
    }
    for uri, (mime_type, body) in offered.items():
        entry = {
            "uri": uri,
            "name": uri.removeprefix("test://"),
            "description": "A fixture.",
            "mimeType": mime_type,
        }
        contents.resources[uri] = (entry, [{"uri": uri, "mimeType": mime_type, **body}])

    def expand(uri: str) -> list[Json] | None:
        number = uri.removeprefix("test://template/").removesuffix("/data")
        if uri != f"test://template/{number}/data":
            return None
        data: dict[str, Any] = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]

    template = {
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "mimeType": "application/json",
    }
    contents.templates.append((template, expand))


def _prompts(contents: Contents) -> None:
    def offer(name: str, words: Words, *arguments: str) -> None:
        wanted = [{"name": argument, "description": argument, "required": True} for argument in arguments]
        contents.prompts[name] = ({"name": name, "description": "A fixture.", "arguments": wanted}, words)

    offer("test_simple_prompt", lambda _: [said(text("This is a simple prompt for testing."))])
    offer(
        "test_prompt_with_arguments",
        lambda given: [
            said(text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"))
        ],
        "arg1",
        "arg2",
    )
    offer(
        "test_prompt_with_embedded_resource",
        lambda given: [
            said(embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")),
            said(text("Please process the embedded resource above.")),
        ],
        "resourceUri",
    )
    offer(
        "test_prompt_with_image", lambda _: [said(image()), said(text("Please analyze the image above."))]
    )
    contents.completions = ["testValue1", "testValue2", "paris", "park", "party"]
