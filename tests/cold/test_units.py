"""Durations, sizes, rates and counts as a person writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import units


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("500ms", 500),
        ("2s", 2_000),
        ("1.5s", 1_500),
        ("1m30s", 90_000),
        ("1h", 3_600_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        (2, 2_000),
        (0.25, 250),
        ("90", 90_000),
        ("3650d", 315_360_000_000),
    ],
)
def test_a_duration_is_read_as_milliseconds(written: Any, milliseconds: int) -> None:
    assert units.read_duration(written) == milliseconds


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1x", '"1x" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("", '"" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("1 hour", '"1 hour" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("30s1h", '"30s1h" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("1h1h", '"1h1h" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("2s\n", '"2s?" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        ("\u0663s", '"\u0663s" is not a duration; write it like 500ms, 2s, 1h or 7d'),
        (True, "true is not a duration; write it like 500ms, 2s, 1h or 7d"),
        (None, "nothing is not a duration; write it like 500ms, 2s, 1h or 7d"),
        (float("inf"), "inf is not a duration; write it like 500ms, 2s, 1h or 7d"),
        (float("nan"), "nan is not a duration; write it like 500ms, 2s, 1h or 7d"),
        ([1], "[1] is not a duration; write it like 500ms, 2s, 1h or 7d"),
        ("-2s", '"-2s" is negative; a duration is written like 500ms, 2s, 1h or 7d'),
        (-1, "-1 is negative; a duration is written like 500ms, 2s, 1h or 7d"),
        ("3651d", '"3651d" is longer than 10 years; write at most 3650d'),
        (10**30, "1000000000000000000000000000000 is longer than 10 years; write at most 3650d"),
        ("0s", '"0s" is too short; write at least 1ms'),
        (0, "0 is too short; write at least 1ms"),
        ("0.1ms", '"0.1ms" is too short; write at least 1ms'),
    ],
)
def test_a_wrong_duration_is_told_what_would_be_right(written: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.read_duration(written)
    assert str(caught.value) == words


def test_zero_is_read_where_it_makes_sense() -> None:
    assert units.read_duration("0s", minimum=0) == 0
    assert units.read_duration(0, minimum=0) == 0


def test_a_long_text_is_shown_bounded_and_without_control_characters() -> None:
    with pytest.raises(ValueError) as caught:
        units.read_duration("\x1b[31m" + "9" * 100_000)
    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


@given(st.integers(min_value=1, max_value=units.MAX_DURATION))
def test_what_show_writes_read_reads(milliseconds: int) -> None:
    assert units.read_duration(units.show_duration(milliseconds)) == milliseconds


@given(st.integers(min_value=1, max_value=units.MAX_SIZE))
def test_what_show_size_writes_read_size_reads(size: int) -> None:
    assert units.read_size(units.show_size(size)) == size


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4MiB", 4_194_304),
        ("16MB", 16_000_000),
        ("512KiB", 524_288),
        ("512 KiB", 524_288),
        ("1.5kB", 1_500),
        ("1KB", 1_000),
        ("100B", 100),
        (4096, 4_096),
        ("4096", 4_096),
        ("1GiB", 1_073_741_824),
    ],
)
def test_a_size_is_read_as_bytes(written: Any, size: int) -> None:
    assert units.read_size(written) == size


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("4 megs", '"4 megs" is not a size; write it like 512KiB, 4MiB or 16MB'),
        ("4M", '"4M" is not a size; write it like 512KiB, 4MiB or 16MB'),
        (False, "false is not a size; write it like 512KiB, 4MiB or 16MB"),
        (-1, "-1 is negative; a size is written like 512KiB, 4MiB or 16MB"),
        ("-1MiB", '"-1MiB" is negative; a size is written like 512KiB, 4MiB or 16MB'),
        ("0B", '"0B" is too small; write at least 1B'),
        ("2TiB", '"2TiB" is too large; write at most 1TiB'),
    ],
)
def test_a_wrong_size_is_told_what_would_be_right(written: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.read_size(written)
    assert str(caught.value) == words


def test_a_rate_is_a_number_a_slash_and_a_unit_or_off() -> None:
    assert units.read_rate("10/second") == "10/second"
    assert units.read_rate("5000/day") == "5000/day"
    assert units.read_rate("off") is None
    assert units.read_rate(False) is None


@pytest.mark.parametrize(
    "written", ["5/fortnight", "0/minute", "-1/minute", "600", 600, None, True, "1/minute\n"]
)
def test_a_wrong_rate_is_told_what_would_be_right(written: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not a rate; write it like 10/second, 600/minute, 1000/hour or 5000/day, or off$",
    ):
        units.read_rate(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("many", '"many" is not a whole number; write one from 1 to 9'),
        (1.5, "1.5 is not a whole number; write one from 1 to 9"),
        (True, "true is not a whole number; write one from 1 to 9"),
        (0, "0 is out of range; write a number from 1 to 9"),
        (10, "10 is out of range; write a number from 1 to 9"),
    ],
)
def test_a_wrong_count_is_told_what_would_be_right(written: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.read_count(written, maximum=9)
    assert str(caught.value) == words
