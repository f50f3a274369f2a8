"""Where the wire tests are sent: to gateways, or through a balancer to three replicas (`GATEWAY_FRONT`).

Behind a balancer every deployment is one of three replicas on Redis, so that tests which differ in their
store only run once, and those that cannot be there are skipped with the reason of their mark:
`@pytest.mark.one_replica("why")`, of which `only=("pipe",)` names the parameters that it holds for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.balancers import CHOICE

HERE: Final = Path(__file__).parent
_IN_MEMORY = ("memory", "era_alone")
# What several replicas do with each other is what these are about: they start them one by one.
_OWN_REPLICAS = (
    *("test_deploy", "test_far", "test_leaving", "test_overload", "test_recovery", "test_reload"),
    *("test_rolling", "test_store", "test_turns", "test_workers"),
)
# Foreign clients and servers, many processes each: behind a balancer in `make test-balanced` alone.
_LONG = (
    *("test_bridge_eras", "test_bridge_native", "test_conformance", "test_official_servers"),
    *("test_real_clients", "test_transparency"),
)


@pytest.fixture(scope="session", autouse=True)
def front_closed() -> Iterator[None]:
    """End with the run what the fronts share."""
    yield
    CHOICE.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run is not for, and skip what cannot be behind a balancer."""
    if CHOICE.word == "direct":
        return
    stays = [item for item in items if _stays(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in stays])
    items[:] = stays
    if CHOICE.word in ("mixed", "rest"):
        return
    for item in items:
        if (reason := _alone(item)) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _stays(item: pytest.Item) -> bool:
    if item.path.parent != HERE:
        return True
    in_memory = _has_any(item, _IN_MEMORY)
    if CHOICE.word in ("mixed", "rest"):
        mixed = _alone(item) is None or (in_memory and not item.path.name.startswith(_OWN_REPLICAS))
        return mixed == (CHOICE.word == "mixed")
    return not in_memory and not (CHOICE.word == "alternate" and item.path.name.startswith(_LONG))


def _alone(item: pytest.Item) -> str | None:
    """Return why a test cannot be behind a balancer, `None` where it can."""
    if item.path.name.startswith(_OWN_REPLICAS):
        return "brings replicas of its own"
    for mark in item.iter_markers("one_replica"):
        if "only" not in mark.kwargs or _has_any(item, mark.kwargs["only"]):
            return f"one replica: {mark.args[0]}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Turn to the front of the test's module."""
    CHOICE.turn_to(item.path.name)


def _has_any(item: pytest.Item, values: Sequence[str]) -> bool:
    spec = getattr(item, "callspec", None)
    return spec is not None and any(value in values for value in spec.params.values())
