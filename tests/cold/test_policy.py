"""Which rule holds, and what of a client's wishes is granted (SEP-1686 sections 4.1 and 4.5)."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tasks.policy import FORBIDDEN, Policy, PolicyBook, grant_keep_alive

DEFAULT: Final = Policy(pattern="default")
FIRST: Final = Policy(pattern="render_*", mode="required")
SECOND: Final = Policy(pattern="*_big", mode="forbidden")
READ: Final = Policy(pattern="resources/read")
BOOK: Final = PolicyBook(
    default=DEFAULT,
    tools=(("render_*", FIRST), ("*_big", SECOND), ("[ab]?", READ)),
    methods={"resources/read": READ},
)
MILLISECONDS: Final = st.integers(min_value=0, max_value=2**53)


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("render_page", FIRST),
        ("render_big", FIRST),
        ("cut_big", SECOND),
        ("a1", READ),
        ("other", DEFAULT),
        ("Render_page", DEFAULT),
        ("render", DEFAULT),
        ("", DEFAULT),
        (None, DEFAULT),
        ("render_\n", FIRST),
    ],
)
def test_of_the_tools_patterns_the_first_that_matches_counts(tool: str | None, found: Policy) -> None:
    assert BOOK.find("tools/call", tool) is found


def test_methods_are_tasks_only_where_they_are_named() -> None:
    assert BOOK.find("resources/read", None) is READ
    assert BOOK.find("resources/read", "render_page") is READ
    for method in ("prompts/get", "resources/list", "ping", "tools/list", ""):
        assert BOOK.find(method, "render_page") is FORBIDDEN
    assert FORBIDDEN.mode == "forbidden"


@pytest.mark.parametrize(
    ("default", "most", "asked", "forever", "granted"),
    [
        (100, 1_000, None, False, 100),
        (100, 1_000, 500, False, 500),
        (100, 1_000, 0, False, 0),
        (100, 1_000, 1_000, False, 1_000),
        (100, 1_000, 1_001, False, 1_000),
        (100, 1_000, None, True, 1_000),
        (100, None, None, True, None),
        (100, None, None, False, 100),
        (100, None, 2**53, False, 2**53),
        (5_000, 1_000, None, False, 1_000),
    ],
)
def test_what_is_granted(
    default: int, most: int | None, asked: int | None, forever: bool, granted: int | None
) -> None:
    policy = Policy(keep_alive_default=default, keep_alive_max=most)
    assert grant_keep_alive(policy, asked, wanted_forever=forever) == granted


@given(MILLISECONDS, MILLISECONDS, st.none() | MILLISECONDS, st.booleans())
def test_I8_never_more_than_the_most_is_granted(
    default: int, most: int, asked: int | None, forever: bool
) -> None:
    policy = Policy(keep_alive_default=default, keep_alive_max=most)
    granted = grant_keep_alive(policy, asked, wanted_forever=forever and asked is None)
    assert granted is not None
    assert 0 <= granted <= most
    if asked is not None:
        assert granted == min(asked, most)


@given(MILLISECONDS, st.none() | MILLISECONDS)
def test_without_a_most_every_wish_is_granted(default: int, asked: int | None) -> None:
    policy = Policy(keep_alive_default=default, keep_alive_max=None)
    assert grant_keep_alive(policy, asked, wanted_forever=asked is None) == asked
