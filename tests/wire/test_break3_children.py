"""The shell that watches over stdio children is a process like others: it can be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.gateways import Gateway, StartGateway
from tests.wire.raw_upstream import soon
from tests.wire.seed_client import Seed
from tests.wire.test_break_children import configuration, gone

pytestmark = pytest.mark.asyncio(loop_scope="session")


def warden_of(gateway: Gateway) -> int:
    """Return the process id of the one child that is a shell."""
    pid = gateway.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    (found,) = [one for one in children if "sh" in Path(f"/proc/{one}/cmdline").read_text().split("\0")[0]]
    return int(found)


async def ask_pids(seed: Seed) -> list[int]:
    """Return the child and the child's child, which outlive a gateway that nobody watches."""
    answer = await seed.ask("tools/call", {"name": "grandchild", "arguments": {}})
    return [answer["result"]["pid"], answer["result"]["own"]]


@pytest.mark.one_replica("looks at the gateway's process")
async def test_a_killed_warden_is_replaced_and_knows_the_children_of_the_first(
    gateway: StartGateway,
) -> None:
    served = gateway(configuration())
    pids: list[int] = []
    try:
        async with Seed(served.url()) as first, Seed(served.url()) as second:
            pids += await ask_pids(first)
            warden = warden_of(served)
            os.kill(warden, signal.SIGKILL)
            await soon(lambda: gone(warden))
            pids += await ask_pids(second)
            async with Seed(served.url()) as third:
                pids += await ask_pids(third)
                served.process.send(signal.SIGKILL)
                await soon(lambda: all(gone(pid) for pid in pids))
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
