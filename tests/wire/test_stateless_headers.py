"""The stateless era: what a request says of itself, in headers and in `_meta` (streamable-http, basic)."""

from __future__ import annotations

import base64
import json

import pytest
from multidict import CIMultiDict

from tests.wire.answers import Json
from tests.wire.era_world import Eras, meanwhile, new_key
from tests.wire.scripted_upstream import text, tool
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import HEADER_MISMATCH, META, UNSUPPORTED_VERSION, VERSION, sentinel

pytest_plugins = ["tests.wire.era_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
OLDER = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


@pytest.fixture(scope="session")
def eras(era_alone: Eras) -> Eras:
    """Serve on one store: nothing here is kept in it."""
    return era_alone


async def ends(eras: Eras, caller: Stateless, params: Json, headers: dict[str, str | None]) -> str:
    """Call a tool that answers at once and return its text."""
    key = params["arguments"]["key"]
    async with meanwhile(caller.ask("tools/call", params, headers=headers)) as asking:
        (await eras.upstream.called(key)).finish(text("passed"))
        return (await asking).text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("MCP-Protocol-Version", None),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("MCP-Protocol-Version", "2027-01-01"),
        ("MCP-Protocol-Version", ""),
        ("Mcp-Method", None),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", "TOOLS/CALL"),
        ("Mcp-Method", ""),
        ("Mcp-Name", None),
        ("Mcp-Name", "other"),
        ("Mcp-Name", "PLAIN"),
        ("Mcp-Name", ""),
        ("Mcp-Name", "=?base64?b3RoZXI=?="),
        ("Mcp-Name", "=?base64?!!!?="),
        ("Mcp-Name", "=?BASE64?cGxhaW4=?="),
    ],
)
async def test_headers_must_match_the_body(
    eras: Eras, caller: Stateless, name: str, content: str | None
) -> None:
    key = new_key()
    reply = await caller.ask("tools/call", tool(key, "plain"), headers={name: content})
    assert reply.refusal[:2] == (400, HEADER_MISMATCH)
    assert name.lower() in reply.refusal[2].lower()
    assert key not in eras.upstream.calls


@pytest.mark.parametrize("name", ["MCP-PROTOCOL-VERSION", "mcp-method", "mCP-nAME"])
async def test_header_names_may_be_spelt_in_any_case(eras: Eras, caller: Stateless, name: str) -> None:
    params = tool(new_key(), "plain")
    content = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "plain"}[
        name.lower()
    ]
    assert await ends(eras, caller, params, {name: content}) == "passed"


async def test_a_name_in_base64_is_decoded(eras: Eras, caller: Stateless) -> None:
    params = tool(new_key(), "plain")
    encoded = f"=?base64?{base64.b64encode(b'plain').decode()}?="
    assert await ends(eras, caller, params, {"Mcp-Name": encoded}) == "passed"


@pytest.mark.parametrize(
    "name", ["plain_日本", "plain ", "plain=?base64?x?=", "plain\n", "=?base64?plain?="]
)
async def test_names_that_no_header_can_carry_come_in_base64(
    eras: Eras, caller: Stateless, name: str
) -> None:
    key = new_key()
    async with meanwhile(caller.ask("tools/call", tool(key, name), tasks=False)) as asking:
        call = await eras.upstream.called(key)
        assert call.message["params"]["name"] == name
        call.finish(text("passed"))
        assert (await asking).text == "passed"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("resources/read", {"uri": "test://static"}, "test://other"),
        ("prompts/get", {"name": "greet"}, "other"),
        ("tasks/get", {"taskId": "x"}, "y"),
        ("tasks/update", {"taskId": "x", "inputResponses": {}}, "y"),
        ("tasks/cancel", {"taskId": "x"}, "y"),
    ],
)
async def test_the_name_header_is_checked_where_there_is_a_name(
    caller: Stateless, method: str, params: Json, name: str
) -> None:
    for content in (name, sentinel(f"{name}é")):
        reply = await caller.ask(method, params, headers={"Mcp-Name": content})
        assert reply.refusal[:2] == (400, HEADER_MISMATCH)
    missing = await caller.ask(method, params, headers={"Mcp-Name": None})
    if method.startswith("tasks/"):
        # FastMCP 4.1 sends none there.
        assert missing.refusal[:2] == (200, -32602)
        assert "not found" in missing.refusal[2]
    else:
        assert missing.refusal[:2] == (400, HEADER_MISMATCH)


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({"region": "us-west1"}, {"Mcp-Param-Region": "us-west1"}, True),
        ({"region": "us-west1"}, {"mcp-param-region": sentinel("us-west1")}, True),
        ({"region": "Zürich"}, {"Mcp-Param-Region": sentinel("Zürich")}, True),
        ({"region": ""}, {"Mcp-Param-Region": ""}, True),
        ({"region": None}, {}, True),
        ({}, {}, True),
        ({"count": 42}, {"Mcp-Param-Count": "42"}, True),
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}, True),
        ({"count": -7}, {"Mcp-Param-Count": "-7"}, True),
        ({"region": "a"}, {"Mcp-Param-Region": "a", "Mcp-Param-Unknown": "x"}, True),
        ({"region": "us-west1"}, {}, False),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "eu"}, False),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "US-WEST1"}, False),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "=?base64?!?="}, False),
        ({"count": 42}, {"Mcp-Param-Count": "43"}, False),
        ({"count": 42}, {"Mcp-Param-Count": "forty-two"}, False),
        ({}, {"Mcp-Param-Region": "eu"}, False),
    ],
)
async def test_parameter_headers_must_match_the_arguments(
    eras: Eras, caller: Stateless, arguments: Json, headers: dict[str, str | None], fits: bool
) -> None:
    key = new_key()
    params = tool(key, "plain_mirrored", **arguments)
    if fits:
        assert await ends(eras, caller, params, headers) == "passed"
        call = await eras.upstream.called(key)
        assert not [name for name in eras.upstream.post_of(call).headers if name.startswith("mcp-param-")]
        return
    reply = await caller.ask("tools/call", params, headers=headers)
    assert reply.refusal[:2] == (400, HEADER_MISMATCH)
    assert key not in eras.upstream.calls


@pytest.mark.parametrize("version", [*OLDER, "1900-01-01", "2099-12-31", "draft", "", "9" * 5000])
async def test_an_unsupported_version_is_refused_with_those_that_are_not(
    caller: Stateless, version: str
) -> None:
    meta = {f"{META}protocolVersion": version}
    headers = {"MCP-Protocol-Version": version}
    reply = await caller.ask("server/discover", {"_meta": meta}, headers=headers, wrong=True)
    assert reply.refusal[:2] == (400, UNSUPPORTED_VERSION)
    data = reply.response["error"]["data"]
    assert VERSION in data["supported"]
    assert set(data["supported"]) <= set((await caller.discover())["supportedVersions"])
    assert version.startswith(data["requested"])
    assert len(data["requested"]) <= 100


@pytest.mark.parametrize("method", ["server/discover", "tools/call", "tools/list", "tasks/get"])
@pytest.mark.parametrize("field", ["protocolVersion", "clientCapabilities"])
async def test_a_request_without_its_metadata_is_refused(
    eras: Eras, caller: Stateless, method: str, field: str
) -> None:
    key = new_key()
    params: Json = {"tools/call": tool(key, "plain"), "tasks/get": {"taskId": "x"}}.get(method, {})
    message = caller.request(method, params)
    del message["params"]["_meta"][f"{META}{field}"]
    async with await caller.send(json.dumps(message).encode(), caller.fields(message), message) as answer:
        response = await answer.response()
    assert (answer.status, response["error"]["code"]) == (400, -32602)
    assert field in response["error"]["message"]
    assert key not in eras.upstream.calls


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": {}}, [], "x"])
async def test_a_request_without_any_metadata_is_refused(caller: Stateless, params: object) -> None:
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params}
    if params is None:
        del message["params"]
    fields = caller.fields({"method": "server/discover"})
    async with await caller.send(json.dumps(message).encode(), fields, message) as answer:
        response = await answer.response()
    assert answer.status == 400
    assert response["error"]["code"] in (-32602, -32600)


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("protocolVersion", None),
        ("protocolVersion", 20260728),
        ("protocolVersion", [VERSION]),
        ("clientCapabilities", None),
        ("clientCapabilities", []),
        ("clientCapabilities", "x"),
        ("clientCapabilities", True),
        ("clientCapabilities", {"elicitation": True}),
        ("clientCapabilities", {"sampling": []}),
        ("clientCapabilities", {"roots": None}),
        ("clientCapabilities", {"extensions": []}),
        ("clientInfo", "x"),
        ("clientInfo", None),
        ("clientInfo", {"name": "x"}),
        ("clientInfo", {"name": 1, "version": "1"}),
        ("logLevel", "loud"),
        ("logLevel", 3),
        ("logLevel", None),
    ],
)
async def test_metadata_of_the_wrong_type_is_refused(
    eras: Eras, caller: Stateless, field: str, content: object
) -> None:
    key = new_key()
    params = {**tool(key, "plain"), "_meta": {f"{META}{field}": content}}
    reply = await caller.ask("tools/call", params, wrong=True)
    assert reply.refusal[:2] == (400, -32602)
    assert field in reply.refusal[2]
    assert key not in eras.upstream.calls


@pytest.mark.parametrize("token", [None, True, 1.5, [], {}])
async def test_a_progress_token_is_a_string_or_an_integer(caller: Stateless, token: object) -> None:
    params = {**tool(new_key(), "plain"), "_meta": {"progressToken": token}}
    assert (await caller.ask("tools/call", params, wrong=True)).refusal[1] == -32602


async def test_a_client_need_not_name_itself(caller: Stateless) -> None:
    message = caller.request("tools/list")
    del message["params"]["_meta"][f"{META}clientInfo"]
    async with await caller.send(json.dumps(message).encode(), caller.fields(message), message) as answer:
        assert (await answer.response())["result"]["tools"]


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
@pytest.mark.parametrize("same", [True, False])
async def test_a_header_that_comes_twice_is_refused(
    eras: Eras, caller: Stateless, name: str, same: bool
) -> None:
    key = new_key()
    message = caller.request("tools/call", tool(key, "plain"))
    fields = CIMultiDict(caller.fields(message))
    fields.add(name, fields[name] if same else "other")
    async with await caller.send(json.dumps(message).encode(), fields, message) as answer:
        response = await answer.response()
    assert (answer.status, response["error"]["code"]) == (400, HEADER_MISMATCH)
    assert key not in eras.upstream.calls
