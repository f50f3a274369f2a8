"""The clients that were written for the tests, against servers that are not ours: both sides agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes import Process
from tests.tools import venv_python
from tests.upstreams import StartServer
from tests.wire.checked import Json, book
from tests.wire.stateless_client import Stateless
from tests.wire.stateless_rules import HEADER_MISMATCH, METHOD_NOT_FOUND, accept, sampled, sentinel
from tests.wire.tasks_b_client import INVALID_PARAMS, TasksB, related_to
from tests.wire.tasks_b_client import accept as accepted

pytestmark = pytest.mark.one_replica("speaks to no gateway")

TTL = 60_000


@pytest.fixture
def native_b() -> Iterator[str]:
    """Serve the tasks of `mcp` 1.x; return its URL."""
    module = "tests.fixture_servers.native_b_server"
    process = Process([str(venv_python("mcp1")), "-m", module, "http", "0"])
    yield process.wait_line(r"^ready (\S+)$")[1]
    process.stop()


async def test_the_stateless_client_calls_with_progress_and_answers_what_it_is_asked(
    fixture_server: StartServer,
) -> None:
    async with Stateless(fixture_server("mcp2").url) as client:
        assert "2026-07-28" in (await client.discover())["supportedVersions"]
        counted = await client.call("slow_count", {"seconds": 0.1, "steps": 2}, progress="token")
        assert [note["params"]["progressToken"] for note in counted.notifications] == ["token"] * 3
        inputs = {"elicitation/create": accept(name="Ada"), "sampling/createMessage": sampled("short")}
        greeted = await client.call("two_questions", inputs=inputs)
        assert greeted.text == "Hello, Ada and Ada!"
        assert greeted.rounds
        assert (await client.call("summarise", {"text": "long"}, inputs=inputs)).rounds


async def test_the_stateless_client_listens_to_what_it_asked_for(fixture_server: StartServer) -> None:
    async with Stateless(fixture_server("mcp2").url) as client:
        wanted: Json = {"toolsListChanged": True, "resourceSubscriptions": ["test://watched"]}
        async with client.listen(wanted) as subscription:
            assert subscription.acknowledged == wanted
            await client.call("add_tool", {"name": "fresh"})
            await client.call("touch")
            heard = [await subscription.next(), await subscription.next()]
            assert [one["method"] for one in heard if one] == [
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]


async def test_the_stateless_client_sends_wrong_headers_and_messages_where_it_is_told_to(
    fixture_server: StartServer,
) -> None:
    async with Stateless(fixture_server("mcp2").url) as client:
        mismatch = await client.ask("tools/list", headers={"mcp-method": "prompts/list"})
        assert mismatch.refusal[:2] == (400, HEADER_MISMATCH)
        assert (await client.ask("tasks/list")).refusal[:2] == (404, METHOD_NOT_FOUND)
        with pytest.raises(AssertionError, match="CallToolRequest"):
            await client.ask("tools/call", {"name": 1})
        assert (await client.ask("tools/call", {"name": 1}, wrong=True)).status == 400


async def test_the_client_of_dialect_b_runs_lists_and_cancels_tasks(native_b: str) -> None:
    async with TasksB(native_b) as client:
        counted = await client.start("slow_count", {"seconds": 0.1}, ttl=TTL)
        result = await client.result(counted)
        assert result["result"]["content"][0]["text"] == "Counted for 0.1 seconds."
        endless = await client.start("never", ttl=TTL)
        assert set(await client.list()) == {counted, endless}
        await client.cancel(endless)
        assert (await client.cancel(endless))["error"]["code"] == INVALID_PARAMS


async def test_the_client_of_dialect_b_answers_on_whichever_stream_it_is_asked(native_b: str) -> None:
    async with TasksB(native_b, responder=lambda _: accepted(name="Ada")) as client:
        await client.listen()
        task_id = await client.start("ask_name", ttl=TTL)
        result = await client.result(task_id)
        assert result["result"]["content"][0]["text"] == "Hello, Ada!"
        asked = await client.asked("elicitation/create")
        assert related_to(asked.message) == task_id


@pytest.mark.parametrize(
    ("message", "asked", "fault"),
    [
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, None, "resultType"),
        (
            {"jsonrpc": "2.0", "id": "1", "result": {"resultType": "complete"}},
            {"id": 1, "method": "x"},
            "answers id",
        ),
        (
            {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}},
            {"id": 1, "method": "tools/list"},
            "ListToolsResult",
        ),
        (
            {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task", "taskId": "t"}},
            {"id": 1, "method": "tools/call"},
            "CreateTaskResult",
        ),
        (
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32021, "message": "no"}},
            None,
            "MissingRequiredClientCapabilityError",
        ),
        ({"jsonrpc": "2.0", "method": "notifications/tasks", "params": {}}, None, "TaskStatusNotification"),
    ],
)
def test_messages_that_the_schema_forbids_are_found_out(
    message: Json, asked: Json | None, fault: str
) -> None:
    assert any(fault in found for found in book("2026-07-28").faults(message, asked))


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_header_values_are_encoded_as_the_table_of_the_transport_text_has_them(
    value: str, header: str
) -> None:
    assert sentinel(value) == header
