"""The client on a terminal, as a person has it: a pseudo-terminal and a process of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.warm.client_fake import Fake, fake
from tests.warm.client_terminal import Terminal


@pytest.fixture
async def server() -> AsyncGenerator[Fake]:
    async with fake() as running:
        yield running


async def test_a_terminal_shows_progress_while_a_task_runs(server: Fake) -> None:
    async with Terminal("call", server.url, "slow", "--task") as terminal:
        await terminal.until("half of it")
        await terminal.until("50%")
        await terminal.until("working")
        server.go.set()
        await terminal.until("slow is done")
        assert await terminal.ends() == 0
    assert server.sent("tools/call")[0]["params"]["_meta"]["progressToken"]


async def test_a_terminal_offers_elicitation_and_asks_at_the_prompt(server: Fake) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        terminal.type("\n")
        await terminal.until("word (text):")
        terminal.type("plum\n")
        await terminal.until('"content": {"word": "plum"}')
        assert await terminal.ends() == 0
    offered = server.sent("initialize")[0]["params"]["capabilities"]
    assert offered == {"elicitation": {"form": {}, "url": {}}, "sampling": {}}


async def test_ctrl_c_at_a_prompt_ends_the_client_and_cancels_the_task(server: Fake) -> None:
    async with Terminal("call", server.url, "ask", "--task") as terminal:
        await terminal.until("[A]ccept, [d]ecline, [c]ancel:")
        terminal.process.send_signal(2)
        assert await terminal.ends() == 130
    (call,) = server.calls.values()
    assert call.status == "cancelled"


async def test_text_of_a_server_cannot_steer_the_terminal(server: Fake) -> None:
    async with Terminal("call", server.url, "evil") as terminal:
        await terminal.until("]0;owned")
        assert await terminal.ends() == 0
        assert "\x1b]0;" not in terminal.shown
