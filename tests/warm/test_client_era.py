"""Which era and dialect a server is spoken to in."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from tests.warm.client_fake import Fake, error, fake
from tests.warm.client_fake_b import FakeB, fake_b
from tests.warm.client_fake_c import EXTENSION, FakeC, fake_c
from tests.warm.client_run import client


@pytest.fixture
async def a() -> AsyncGenerator[Fake]:
    async with fake() as running:
        running.go.set()
        yield running


@pytest.fixture
async def b() -> AsyncGenerator[FakeB]:
    async with fake_b() as running:
        running.go.set()
        yield running


@pytest.fixture
async def c() -> AsyncGenerator[FakeC]:
    async with fake_c() as running:
        running.go.set()
        yield running


async def test_auto_probes_first_and_falls_back_to_the_handshake(a: Fake) -> None:
    ran = await client("call", a.url, "slow", "--task", "--json")
    assert a.methods()[:2] == ["server/discover", "initialize"]
    assert "modelcontextprotocol.io/task" in a.sent("tools/call")[0]["params"]["_meta"]
    assert ran.code == 0


@pytest.mark.parametrize("dialect", ["a", "b"])
async def test_a_named_older_dialect_is_not_probed_for(a: Fake, dialect: str) -> None:
    ran = await client("call", a.url, "slow", "--dialect", dialect)
    assert a.methods()[0] == "initialize"
    assert ran.code == 0


async def test_b_is_preferred_where_a_server_offers_a_and_b(b: FakeB) -> None:
    b.capabilities["tools"] = {"call": True}
    ran = await client("call", b.url, "slow", "--task", "--json")
    assert ran.object["taskId"] in b.tasks


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--dialect", "b", "--task"), "does not offer tasks of dialect b"),
        (("--dialect", "c"), "does not speak protocol 2026-07-28, which dialect c needs"),
    ],
)
async def test_what_a_server_of_dialect_a_cannot_do_is_exit_code_2(
    a: Fake, words: tuple[str, ...], complaint: str
) -> None:
    ran = await client("call", a.url, "slow", *words)
    assert ran.code == 2
    assert complaint in ran.err
    assert not a.sent("tools/call")


async def test_dialect_a_is_not_forced_on_a_server_of_dialect_b(b: FakeB) -> None:
    ran = await client("call", b.url, "slow", "--task", "--dialect", "a")
    assert ran.code == 2
    assert "does not offer tasks of dialect a (SEP-1686" in ran.err


async def test_a_stateless_server_without_the_extension_is_called_plainly(c: FakeC) -> None:
    c.extension = False
    ran = await client("call", c.url, "slow", "--task")
    assert (ran.code, ran.out) == (0, "an ordinary call\n")
    assert "the server has no tasks: this is an ordinary call" in ran.err
    forced = await client("call", c.url, "slow", "--task", "--dialect", "c")
    assert forced.code == 2
    assert f"does not offer tasks of dialect c (the extension {EXTENSION})" in forced.err


async def test_a_modern_error_never_leads_to_the_handshake(c: FakeC) -> None:
    c.versions = ["2027-01-01"]
    ran = await client("call", c.url, "slow")
    assert ran.code == 2
    assert "the server speaks protocol 2027-01-01, this client 2026-07-28 and older" in ran.err
    c.refusals["server/discover"] = [web.json_response(error(1, -32020, "Header mismatch"), status=400)]
    mismatch = await client("call", c.url, "slow")
    assert mismatch.code == 1
    assert "Header mismatch (-32020)" in mismatch.err
    assert c.methods() == ["server/discover"] * 2


async def test_an_unsupported_version_with_an_older_one_leads_to_the_handshake(a: Fake) -> None:
    refused = error(1, -32022, "Unsupported protocol version")
    refused["error"]["data"] = {"supported": ["2025-11-25"], "requested": "2026-07-28"}
    a.refuse_method = "server/discover"
    a.refusals = [web.json_response(refused, status=400)]
    ran = await client("call", a.url, "slow", "--task")
    assert ran.code == 0
    assert a.methods()[:2] == ["server/discover", "initialize"]


async def test_a_discovery_without_versions_is_none(a: Fake) -> None:
    a.refuse_method = "server/discover"
    a.refusals = [web.json_response({"jsonrpc": "2.0", "id": 1, "result": {"capabilities": {}}})]
    ran = await client("call", a.url, "slow", "--task")
    assert ran.code == 0
    assert "initialize" in a.methods()


async def test_a_session_id_of_a_probe_is_not_taken_up(a: Fake) -> None:
    a.refuse_method = "server/discover"
    headers = {"Mcp-Session-Id": "of-the-probe"}
    a.refusals = [web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}}, headers=headers)]
    await client("call", a.url, "slow")
    assert all(h.get("mcp-session-id") != "of-the-probe" for h in a.headers)


async def test_a_list_of_tasks_is_asked_for_in_a_dialect_that_has_one(c: FakeC, b: FakeB) -> None:
    listed = await client("tasks", "list", b.url)
    assert listed.code == 0
    assert "server/discover" not in b.methods()
    ran = await client("tasks", "list", c.url)
    assert ran.code == 2
    assert "takes no initialize (Method not found), and dialect c has no list of tasks" in ran.err


async def test_a_stateless_server_without_tasks_is_said_to_be_one(c: FakeC) -> None:
    c.extension = False
    ran = await client("tasks", "get", c.url, "t-1")
    assert ran.code == 2
    assert "it has no tasks of dialect c" in ran.err


async def test_a_named_session_is_taken_up_without_a_probe(a: Fake) -> None:
    left = await client("call", a.url, "slow", "--detach", "--json")
    seen = len(a.got)
    await client("tasks", "get", a.url, left.object["taskId"], "--session", left.object["session"])
    assert a.methods()[seen:] == ["tasks/get"]


async def test_an_update_needs_dialect_c(b: FakeB) -> None:
    ran = await client("tasks", "update", b.url, "t-1", "--answer", "x=1")
    assert ran.code == 2
    assert "dialect b has no update" in ran.err
