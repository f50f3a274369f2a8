"""Splicing JSON: one member changes, everything else stays (I1)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.envelope import dump, members
from gateway.protocol.splice import drop_member, set_member

LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
    | st.sampled_from(["\ud800", "a\udfffb", "\ufdd0d800", "\\ud800"])
)
JSON: Final = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
OBJECTS: Final = st.dictionaries(st.text() | st.sampled_from(["a", "b"]), JSON, max_size=5)
PATHS: Final = st.lists(st.sampled_from(["a", "b", "é"]), min_size=1, max_size=3).map(tuple[str, ...])
# Spellings that a rebuilt tree would lose.
ODD: Final = (
    b'{"n":1.0,"e":1E+2,"big":12345678901234567890,"z":-0,'
    b'"s":"\\u00e9\\/","o":{ "x" : [ 1 , 2 ] },"t":"\xc3\xa9"}'
)


def written(data: Any) -> bytes:
    return json.dumps(data).encode()


def parts_of(raw: bytes) -> list[tuple[str, bytes]]:
    return [(name, bytes(part)) for name, part in members(raw).items()]


def at(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        (b"{}", ("a",), b'{"a":0}'),
        (b'{"b":1}', ("a",), b'{"b":1,"a":0}'),
        (b'{"a":1,"b":2}', ("a",), b'{"a":0,"b":2}'),
        (b'{"a":{"c":1},"b":2}', ("a", "b"), b'{"a":{"c":1,"b":0},"b":2}'),
        (b'{"b":2}', ("a", "b", "c"), b'{"b":2,"a":{"b":{"c":0}}}'),
        (b'{"a":5}', ("a", "b"), b'{"a":{"b":0}}'),
        (b'{"a":null}', ("a", "b"), b'{"a":{"b":0}}'),
        (b' { "b" : 1.0 } ', ("a",), b'{"b":1.0,"a":0}'),
        (b'{"\\u0061":1}', ("a",), b'{"a":0}'),
    ],
)
def test_a_member_is_set_where_it_stands_or_behind_the_rest(
    before: bytes, path: tuple[str, ...], after: bytes
) -> None:
    assert set_member(before, path, b"0") == after


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        (b'{"a":1,"b":2}', ("a",), b'{"b":2}'),
        (b'{"a":1}', ("a",), b"{}"),
        (b'{"a":{"b":1}}', ("a", "b"), b'{"a":{}}'),
        (b'{"a":{"b":1,"c":1.0}}', ("a", "b"), b'{"a":{"c":1.0}}'),
    ],
)
def test_a_member_is_dropped(before: bytes, path: tuple[str, ...], after: bytes) -> None:
    assert drop_member(before, path) == after


@pytest.mark.parametrize("path", [("x",), ("a", "x"), ("a", "b", "c"), ("x", "y")])
def test_I1_dropping_what_is_not_there_changes_not_one_byte(path: tuple[str, ...]) -> None:
    raw = b' { "a" : { "b" : 1.0 } , "a2":[ ] } '
    assert drop_member(raw, path) is raw
    assert drop_member(raw, path, prune=True) is raw


def test_pruning_takes_the_objects_that_were_left_empty_and_no_others() -> None:
    assert drop_member(b'{"a":{"b":{"c":1}},"d":{}}', ("a", "b", "c"), prune=True) == b'{"d":{}}'
    assert drop_member(b'{"a":{"b":{"c":1},"e":2}}', ("a", "b", "c"), prune=True) == b'{"a":{"e":2}}'


def test_I1_values_keep_their_spelling() -> None:
    after = set_member(ODD, ("new",), b"{}")
    assert after == ODD[:-1] + b',"new":{}}'
    assert drop_member(after, ("new",)) == ODD


@given(OBJECTS, PATHS, JSON)
@example({"\ud800": 1}, ("a",), 0)
@example({"\ufdd0d800": 1, "\ud800": 2}, ("a",), 0)
def test_I1_setting_changes_one_value_and_leaves_all_other_bytes(
    data: dict[str, Any], path: tuple[str, ...], new: Any
) -> None:
    raw = written(data)
    after = set_member(raw, path, written(new))
    assert at(json.loads(after), path) == new
    beside = [part for part in parts_of(after) if part[0] != path[0]]
    assert beside == [part for part in parts_of(raw) if part[0] != path[0]]
    assert [name for name in json.loads(after) if name in data] == list(data)
    if len(path) > 1 and isinstance(data.get(path[0]), dict):
        inner = set_member(written(data[path[0]]), path[1:], written(new))
        assert dict(parts_of(after))[path[0]] == inner


@given(OBJECTS, st.sampled_from(["new", "x/y.z", "é"]), JSON)
@example({"\ud800": 1}, "new", 0)
def test_I1_setting_and_dropping_again_gives_back_what_was(
    data: dict[str, Any], name: str, new: Any
) -> None:
    data.pop(name, None)
    raw = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()
    back = drop_member(set_member(raw, (name,), written(new)), (name,))
    assert json.loads(back) == data
    assert list(json.loads(back)) == list(data)
    assert [part for _, part in parts_of(back)] == [part for _, part in parts_of(raw)]


@given(OBJECTS, PATHS)
def test_dropping_leaves_everything_beside_the_member(data: dict[str, Any], path: tuple[str, ...]) -> None:
    raw = written(data)
    after = drop_member(raw, path)
    wanted = json.loads(raw)
    place = wanted
    for name in path[:-1]:
        place = place.get(name) if isinstance(place, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # any JSON
    if isinstance(place, dict):
        place.pop(path[-1], None)  # pyright: ignore[reportUnknownMemberType]  # any JSON
    assert json.loads(after) == wanted


@given(st.text())
def test_a_name_of_any_text_is_written_as_json(name: str) -> None:
    assert json.loads(set_member(b"{}", (name,), b"1")) == {name: 1}
    assert json.loads(dump(name)) == name
