"""Real clients of both eras against real servers, through one gateway: tasks, input, errors, progress.

The programs run three at a time while the tests wait for their own; what was seen is kept, and the
README's table is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import cast

import pytest

from tests import readme
from tests.balancers import serve
from tests.gateways import Gateway
from tests.wire import client_table, clients_upstreams
from tests.wire.clients_judged import mistake
from tests.wire.clients_tried import CLIENTS, Account, run
from tests.wire.clients_upstreams import NEVER_TRIED, TITLES, TOOLS, Servers

AT_A_TIME = 3
CELLS = [cell for cell in product(CLIENTS, TITLES) if cell not in NEVER_TRIED]

Seen = dict[str, str | None]
Runs = dict[tuple[str, str], "Future[dict[str, Account]]"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Start servers, a gateway and the programs of those cells that are asked for."""
    place = tmp_path_factory.mktemp("clients")
    asked = {
        cast("tuple[str, str]", item.callspec.params["cell"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__) and hasattr(item, "callspec")
    }
    servers = Servers(place)
    front: Gateway | None = None
    pool = ThreadPoolExecutor(AT_A_TIME)
    try:
        front = serve(clients_upstreams.config(servers), place)
        front.wait("/healthz")
        yield {cell: pool.submit(_play, front, *cell) for cell in CELLS if cell in asked}
    finally:
        pool.shutdown(cancel_futures=True)
        servers.end()
        if front is not None:
            front.end()


def _play(front: Gateway, name: str, upstream: str) -> dict[str, Account]:
    client = CLIENTS[name]
    return run(client, clients_upstreams.plan(client, name, upstream, front.url))


@pytest.fixture(scope="module")
def outcomes() -> client_table.Outcomes:
    """What has been seen so far in this run."""
    return {}


@pytest.mark.parametrize("cell", CELLS, ids="-on-".join)
def test_a_real_client_gets_what_its_protocol_promises(
    cell: tuple[str, str], runs: Runs, outcomes: client_table.Outcomes
) -> None:
    name, upstream = cell
    client, tools = CLIENTS[name], TOOLS[upstream]
    accounts = runs[cell].result()
    seen: Seen = {
        scene: mistake(client, name, scene, tools[scene], accounts.get(scene))
        for scene in client.scenes
        if scene in tools
    }
    outcomes.setdefault(name, {})[upstream] = seen
    mistakes = [wrong for wrong in seen.values() if wrong]
    assert not mistakes, "\n".join(mistakes)


def test_the_table_of_the_readme_is_what_was_seen(outcomes: client_table.Outcomes) -> None:
    if sum(map(len, outcomes.values())) < len(CELLS):
        pytest.skip("only some of the clients were tried")
    client_table.keep(outcomes)
    table = client_table.shown(readme.text())
    assert table is not None, "the README shows no table of clients"
    assert table == client_table.render(outcomes)
