"""When an earlier pattern leaves nothing over for a later one."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.patterns import covers


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("*", "get_*"),
        ("get_*", "get_*"),
        ("get_*", "get_user"),
        ("get_*", "get_user_*"),
        ("get_*", "get_?"),
        ("get_*", "get_[ab]"),
        ("get_?", "get_a"),
        ("get_?", "get_?"),
        ("*_x", "get_*_x"),
        ("**", "a"),
        ("a*b*c", "ab*bc"),
    ],
)
def test_a_pattern_that_takes_all_of_another_covers_it(earlier: str, later: str) -> None:
    assert covers(earlier, later)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("get_*", "*"),
        ("get_*", "get*"),
        ("get_?", "get_*"),
        ("get_a", "get_?"),
        ("get_a", "get_[ab]"),
        ("*a*", "x[abc]"),
        ("[ab]", "a?"),
        ("a.c", "abc"),
        ("get", "GET"),
    ],
)
def test_a_pattern_that_leaves_something_over_does_not(earlier: str, later: str) -> None:
    assert not covers(earlier, later)


@given(
    st.text("ab*?", max_size=6),
    st.text("ab*?[]!", max_size=6),
    st.lists(st.text("abc", max_size=5), max_size=50),
)
def test_what_a_covered_pattern_matches_the_earlier_matches_too(
    earlier: str, later: str, names: list[str]
) -> None:
    if covers(earlier, later):
        assert all(fnmatchcase(name, earlier) for name in names if fnmatchcase(name, later))
