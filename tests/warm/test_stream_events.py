"""An upstream's event stream in whole events: nothing lost, nothing split, nothing held back (I1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.protocol.errors import UpstreamLost
from gateway.session import streams
from tests.cold.test_sse import STREAMS, cut, parse


class Chunks:
    """An upstream's answer in given chunks."""

    status = 200
    headers: list[tuple[str, str]] = []  # noqa: RUF012  # nothing is put in

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self.given = b""

    def header(self, name: str) -> str | None:
        return None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for chunk in self._chunks:
            self.given += chunk
            yield chunk

    async def read(self, limit: int) -> bytes:
        return b"".join(self._chunks)

    async def close(self) -> None:
        return


@given(STREAMS, st.lists(st.integers(min_value=0), max_size=10))
@example(b"data: x\r\n\r\ndata: y\r\n\r\n", list(range(30)))
@example(b"data: x\n\ndata: y\n\n", list(range(30)))
@example(b"data: x\r\rdata: y\r\r", list(range(30)))
@settings(deadline=None)
async def test_I1_whole_events_come_out_as_soon_as_they_are_whole(stream: bytes, places: list[int]) -> None:
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    reply = Chunks(cut(stream, places))
    out = b""
    async for whole in streams.reply_events(reply):
        out += whole
        assert stream.startswith(out)
        assert parse(out) == parse(reply.given)
    assert parse(out) == parse(stream)


async def test_I10_an_event_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_EVENT", 1_000)
    reply = Chunks([b"data: " + b"x" * 90] * 100)
    with pytest.raises(UpstreamLost, match="an event of more than 1000 bytes"):
        async for _ in streams.reply_events(reply):
            pytest.fail("no event is whole")
    assert len(reply.given) < 2_000
