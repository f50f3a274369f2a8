"""Event streams as the standard reads them (WHATWG HTML section 9.2), however they are cut."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.sse import Event, Parser, encode
from gateway.session.streams import cut_events

PIECES: Final = st.sampled_from(
    [
        b"data: x",
        b"data:x",
        b"data",
        b"data:",
        b"data:  two",
        b'data: {"a":1}',
        "data: é✓".encode(),
        b"event: message",
        b"event: endpoint",
        b"event",
        b"id: 7",
        b"id",
        b"id: a\0b",
        b"retry: 250",
        b"retry: 2x",
        b"retry",
        b": comment",
        b":",
        b"unknown: field",
        b"Data: x",
        b" data: x",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r",
    ]
)
STREAMS: Final = st.lists(PIECES, max_size=25).map(b"".join)


def reference(stream: bytes) -> list[Event]:
    """Read a whole stream line by line as the standard tells; the id is that of the event itself."""
    events: list[Event] = []
    data: list[bytes] = []
    name, ident, retry = "", None, None
    *lines, _ = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if not line:
            if data or ident is not None or retry is not None:
                events.append(Event(b"\n".join(data), name or "message", ident, retry))
            data, name, ident, retry = [], "", None, None
        elif not line.startswith(b":"):
            field, _, content = line.partition(b":")
            content = content[1:] if content.startswith(b" ") else content
            if field == b"data":
                data.append(content)
            elif field == b"event":
                name = content.decode(errors="replace")
            elif field == b"id" and b"\0" not in content:
                ident = content.decode(errors="replace")
            elif field == b"retry" and re.fullmatch(rb"[0-9]+", content):
                retry = int(content)
    return events


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(bounds)]


def parse(*chunks: bytes) -> list[Event]:
    parser = Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12))
@example(b"\xef\xbb\xbfdata: x\n\n", [1])
@example(b"\xef\xbb\xbfdata: x\n\n", [2])
@example(b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", [3])
@example(b"data: x\r\r", [])
@example(b"data: x\r\n\r\n", [8, 10])
@example(b"data: x\r\ndata: y\r\n\r\n", list(range(20)))
@example(b"data: x\n\r\n", [])
def test_any_cutting_gives_the_events_of_the_standard(stream: bytes, places: list[int]) -> None:
    assert parse(*cut(stream, places)) == reference(stream)


@given(STREAMS)
def test_byte_by_byte_gives_the_same_events_as_the_whole(stream: bytes) -> None:
    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream) == reference(stream)


@given(st.binary(max_size=120), st.lists(st.integers(min_value=0), max_size=6))
def test_any_bytes_are_read_without_failure(stream: bytes, places: list[int]) -> None:
    assert parse(*cut(stream, places)) == reference(stream)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        # The examples of section 9.2.6.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Event(b"YHOO\n+2\n10")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [Event(b"first event", id="1"), Event(b"second event", id=""), Event(b" third event")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [Event(b""), Event(b"\n")]),
        (b"data:test\n\ndata: test\n\n", [Event(b"test"), Event(b"test")]),
        # An MCP server primes a client: an id, empty data; then says when to come back.
        (b"id: 5\ndata:\n\nretry: 500\n\n", [Event(b"", id="5"), Event(b"", retry=500)]),
        (b"event: error\ndata: boom\n\n", [Event(b"boom", name="error")]),
        (b"event: message\n\ndata: x\n\n", [Event(b"x")]),
        (b"data: x\n", []),
        (b"data: x", []),
    ],
)
def test_the_examples_of_the_standard_are_read_so(stream: bytes, events: list[Event]) -> None:
    assert parse(stream) == events


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\n", b"\n\r", b"\r\r\n"])
def test_I1_an_event_comes_out_with_the_last_byte_it_needs(end: bytes) -> None:
    assert parse(b"data: x" + end) == [Event(b"x")]
    whole, rest = cut_events(b"data: x" + end + b"data: y")
    assert whole.startswith(b"data: x" + end.removesuffix(b"\r\n") or end)
    assert rest == b"data: y"


def test_I10_an_event_that_grows_too_large_is_given_up() -> None:
    parser = Parser(limit=100)
    with pytest.raises(ValueError, match="an event grew beyond 100 bytes"):
        for _ in range(30):
            parser.feed(b"data: abcdefgh\n")


def test_I10_a_line_that_never_ends_is_given_up() -> None:
    parser = Parser(limit=100)
    with pytest.raises(ValueError, match="an event grew beyond 100 bytes"):
        for _ in range(30):
            parser.feed(b"abcdefgh")


def test_I10_empty_lines_of_data_count_too() -> None:
    parser = Parser(limit=100)
    with pytest.raises(ValueError, match="an event grew beyond 100 bytes"):
        for _ in range(30):
            parser.feed(b"data:\n" * 20)


def test_many_small_events_never_reach_the_limit() -> None:
    parser = Parser(limit=100)
    assert sum(len(parser.feed(b": comment\ndata: abcdefgh\n\n")) for _ in range(100)) == 100


def test_a_retry_of_too_many_digits_harms_nothing() -> None:
    assert [event.data for event in parse(b"data: x\nretry: " + b"1" * 5_000 + b"\n\n")] == [b"x"]


@given(
    st.text(st.characters(codec="utf-8")),
    st.none() | st.text(st.characters(codec="ascii", exclude_characters="\0\r\n")),
)
def test_what_is_written_is_read_again(text: str, ident: str | None) -> None:
    wanted = re.sub("\r\n|\r", "\n", text)
    assert parse(encode(text.encode(), ident)) == [Event(wanted.encode(), id=ident)]


def test_a_message_is_written_under_its_name() -> None:
    assert encode(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert encode(b'{"a":1}', "7") == b'event: message\nid: 7\ndata: {"a":1}\n\n'


@given(STREAMS)
def test_I1_cutting_behind_events_loses_nothing_and_splits_none(stream: bytes) -> None:
    whole, rest = cut_events(stream)
    assert whole + rest == stream
    assert parse(whole) == parse(stream)
    assert cut_events(rest)[0] == b""


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=8))
def test_I1_events_may_stand_between_what_is_cut(stream: bytes, places: list[int]) -> None:
    """A keep-alive comment behind each cut changes no event, wherever the chunks end."""
    rest, out = b"", b""
    for chunk in cut(stream.removeprefix(b"\xef\xbb\xbf"), places):
        whole, rest = cut_events(rest + chunk)
        if whole:
            out += whole + b": keep-alive\n\n"
    assert parse(out + rest) == reference(stream.removeprefix(b"\xef\xbb\xbf"))
