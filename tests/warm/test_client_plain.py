"""The client against a server of the official package, without tasks."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator

import pytest

from tests.warm.client_run import client, command
from tests.warm.client_upstream import serve

# Its server asks and closes streams only in the handshake era.
OLDER = ("--dialect", "b")


@pytest.fixture
async def upstream() -> AsyncGenerator[str]:
    async with serve() as (url, _):
        yield url


async def test_prints_the_text_of_a_result(upstream: str) -> None:
    ran = await client("call", upstream, "echo", "text=hello", "times=2")
    assert (ran.code, ran.out, ran.err) == (0, "hello hello\n", "")


async def test_options_may_stand_between_arguments(upstream: str) -> None:
    ran = await client("call", "--json", upstream, "echo", "text=hello", "--args", '{"times": 3}')
    assert ran.code == 0
    assert ran.object["status"] == "completed"
    assert ran.object["result"]["content"][0]["text"] == "hello hello hello"


async def test_a_server_that_answers_in_json_is_understood() -> None:
    async with serve(json_response=True) as (url, _):
        ran = await client("call", url, "echo", "text=seven", "--task")
    assert ran.code == 0
    assert "ordinary call" in ran.err


async def test_a_tool_error_is_exit_code_1(upstream: str) -> None:
    ran = await client("call", upstream, "fail")
    assert ran.code == 1
    assert "Error executing tool fail" in ran.out
    assert "the tool reports an error" in ran.err


async def test_a_tool_error_is_marked_in_json(upstream: str) -> None:
    ran = await client("call", upstream, "fail", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert ran.object["isError"] is True


async def test_a_json_rpc_error_is_exit_code_1_with_code_and_words(upstream: str) -> None:
    ran = await client("tasks", "get", upstream, "none")
    assert ran.code == 1
    assert "(-32601)" in ran.err


async def test_a_form_is_asked_for_until_each_value_fits(upstream: str) -> None:
    ran = await client("call", upstream, "order", *OLDER, typed=["a", "12", "many", "", "3", "y"])
    assert ran.out == '{"size":3,"gift":true}\n'
    for words in ("How many?", "not above 9", "a whole number", "required"):
        assert words in ran.err


async def test_a_form_offers_its_default(upstream: str) -> None:
    ran = await client("call", upstream, "order", *OLDER, typed=["accept", "9", ""])
    assert ran.out == '{"size":9,"gift":false}\n'


@pytest.mark.parametrize(("typed", "action"), [(["d"], "decline"), (["c"], "cancel"), ([], "cancel")])
async def test_a_form_can_be_declined_and_cancelled(upstream: str, typed: list[str], action: str) -> None:
    ran = await client("call", upstream, "order", *OLDER, typed=typed)
    assert (ran.code, ran.out) == (0, f"{action}\n")


async def test_a_url_is_shown_and_agreed_to(upstream: str) -> None:
    ran = await client("call", upstream, "visit", *OLDER, typed=["what", "a"])
    assert (ran.code, ran.out) == (0, "accept\n")
    assert "https://example.com/login" in ran.err


async def test_a_script_answers_forms_beforehand(upstream: str) -> None:
    ran = await client("call", upstream, "order", *OLDER, "--answer", "size=4", "--json")
    assert ran.object["result"]["content"][0]["text"] == '{"size":4,"gift":false}'


async def test_a_script_that_cannot_fill_a_form_cancels_it(upstream: str) -> None:
    ran = await client("call", upstream, "order", *OLDER, "--answer", "gift=true")
    assert ran.out == "cancel\n"
    assert "no --answer for size" in ran.err


async def test_nobody_to_ask_means_no_elicitation_offered(upstream: str) -> None:
    ran = await client("call", upstream, "order", *OLDER)
    assert ran.code == 1


async def test_a_stream_that_the_server_closes_early_is_read_on(upstream: str) -> None:
    ran = await client("call", upstream, "pause", *OLDER)
    assert (ran.code, ran.out) == (0, "after the pause\n")


@pytest.mark.parametrize("dialect", ["b", "c"])
async def test_an_interrupt_cancels_the_request_and_is_exit_code_130(dialect: str) -> None:
    async with serve() as (url, known):
        process = await asyncio.create_subprocess_exec(
            *command("call", url, "forever", "--log-level", "debug", "--dialect", dialect),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        # The tool itself says that it has begun: only then is there something to cancel.
        await asyncio.wait_for(known.begun.wait(), 20)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 20)
        await asyncio.wait_for(known.ended.wait(), 10)
    assert (process.returncode, out, err) == (130, b"", b"")
