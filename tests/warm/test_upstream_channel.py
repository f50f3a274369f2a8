"""One exchange with an HTTP upstream: which messages come, what is told where none does, resumption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest

from gateway.aio.clock import SystemClock
from gateway.crossing.carriers import HttpCarrier
from gateway.protocol.errors import UpstreamLost
from gateway.upstream.channel import UNKNOWN_MEANWHILE, HttpChannel
from gateway.upstream.http import Http
from gateway.upstream.options import UrlOptions
from gateway.upstream.port import place_of
from tests.warm.raw_servers import (
    END,
    REQUEST,
    RESULT,
    LeapClock,
    Play,
    RawServer,
    Request,
    chunk,
    in_turn,
    plain,
    says,
    serve,
    stream_head,
)

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
ASKED = b'{"jsonrpc":"2.0","id":"s-1","method":"roots/list"}'
OTHER = b'{"jsonrpc":"2.0","id":8,"result":{}}'
HEADERS = [("authorization", "Bearer c"), ("mcp-protocol-version", "2025-11-25")]


@asynccontextmanager
async def talking(
    play: Play, session: str | None = "s1", **more: object
) -> AsyncGenerator[tuple[HttpChannel, RawServer, LeapClock]]:
    clock = LeapClock()
    async with serve(play) as server:
        http = Http(UrlOptions(name="x", url=server.url, **more), clock)  # pyright: ignore[reportArgumentType]
        try:
            yield http.channel(session, HEADERS), server, clock
        finally:
            await http.close()
            await asyncio.sleep(0)
            assert http.connections == 0


async def collect(channel: HttpChannel, message: bytes = REQUEST) -> list[bytes]:
    async with aclosing(channel.exchange(message, HEADERS)) as coming:
        return [raw async for raw in coming]


async def lost(channel: HttpChannel) -> UpstreamLost:
    with pytest.raises(UpstreamLost) as caught:
        await collect(channel)
    return caught.value


def event(data: bytes, ident: str | None = None, name: str | None = None) -> bytes:
    head = b"" if name is None else b"event: %s\n" % name.encode()
    number = b"" if ident is None else b"id: %s\n" % ident.encode()
    return chunk(head + number + b"data: " + data + b"\n\n")


async def test_the_request_carries_session_version_credentials_and_both_types() -> None:
    async with talking(says(plain(RESULT))) as (channel, server, _):
        assert await collect(channel) == [RESULT]
        (request,) = server.requests
        assert request.body == REQUEST
        assert request.headers["accept"] == "application/json, text/event-stream"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["mcp-session-id"] == "s1"
        assert request.headers["mcp-protocol-version"] == "2025-11-25"
        assert request.headers["authorization"] == "Bearer c"


async def test_a_stream_yields_its_messages_and_the_response_last() -> None:
    parts = (
        stream_head()
        + chunk(b": comment\n\nid: 1\ndata:\n\n")
        + event(PROGRESS, name="message")
        + event(b"not JSON")
        + event(b'{"no":"rpc"}')
        + event(ASKED)
        + event(PROGRESS, name="ping")
        + event(RESULT)
        + END
    )
    async with talking(says(parts)) as (channel, server, _):
        assert await collect(channel) == [PROGRESS, ASKED, RESULT]
        assert await collect(channel) == [PROGRESS, ASKED, RESULT]
        assert server.connections == 1


async def test_a_wrong_id_is_ignored_and_of_two_answers_the_first_counts() -> None:
    second = RESULT.replace(b"true", b"false")
    parts = stream_head() + event(OTHER) + event(RESULT) + event(second) + END
    async with talking(says(parts)) as (channel, _, _clock):
        assert await collect(channel) == [RESULT]


@pytest.mark.parametrize(
    ("ident", "answered"),
    [
        (b"7", b"7"),
        (b'"7"', b'"7"'),
        (b"0", b"0"),
        (b'"\\u00e9\\/"', '"é/"'.encode()),
        ('"é"'.encode(), b'"\\u00e9"'),
    ],
)
async def test_ids_are_compared_as_values(ident: bytes, answered: bytes) -> None:
    answer = b'{"jsonrpc":"2.0","result":{},"id":%s}' % answered
    async with talking(says(plain(answer))) as (channel, _, _clock):
        assert await collect(channel, b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % ident) == [answer]


async def test_a_batch_of_an_old_upstream_is_taken_apart() -> None:
    async with talking(says(plain(b"[%s, %s,%s]" % (PROGRESS, OTHER, RESULT)))) as (channel, _, _clock):
        assert await collect(channel) == [PROGRESS, RESULT]


async def test_the_connection_lives_on_when_the_stream_ends_soon_after_the_response() -> None:
    go = asyncio.Event()

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_head() + event(RESULT))
        await go.wait()
        writer.write(END)

    async with talking(play) as (channel, server, _):
        assert await collect(channel) == [RESULT]
        go.set()
        await channel.send(b'{"jsonrpc":"2.0","method":"x"}', HEADERS)
        assert server.connections <= 2


@pytest.mark.parametrize(
    ("answer", "words", "status"),
    [
        (plain(b"", "202 Accepted"), "the upstream took the request but sent no answer (202)", None),
        (b"HTTP/1.1 204 X\r\n\r\n", "the upstream took the request but sent no answer (204)", None),
        (plain(b"", "500 Oops"), "the upstream answered with status 500", 500),
        (plain(b"<html>secret", "502 Bad", "text/html"), "the upstream answered with status 502", 502),
        (
            plain(b"<html>secret</html>", media="text/html; charset=utf-8"),
            "the upstream answered with 'text/html' instead of JSON (200)",
            None,
        ),
        (
            plain(RESULT[:20]),
            "the upstream answered with something that is not JSON-RPC (200)",
            None,
        ),
        (plain(OTHER), "the upstream answered another request than this one (200)", None),
        (plain(b"", "401 No"), "the upstream refused the credentials (401)", 401),
        (plain(b"", "307 X", extra="location: /b\r\n"), "the upstream redirects to another URL (307)", 307),
        (plain(RESULT, "404 Gone"), "the upstream no longer knows the session", 404),
        (stream_head() + END, "the upstream ended the stream before the response", None),
        (
            stream_head() + event(PROGRESS, name="error") + END,
            "the upstream reported an error on the stream",
            None,
        ),
    ],
)
async def test_I12_what_is_no_answer_is_told_in_words(
    answer: bytes, words: str, status: int | None
) -> None:
    async with talking(says(answer)) as (channel, _, _clock):
        wrong = await lost(channel)
        assert str(wrong) == words
        assert wrong.status == status
        assert "secret" not in str(wrong)


async def test_a_stream_cut_without_event_ids_is_not_asked_for_again() -> None:
    async with talking(says(stream_head() + event(PROGRESS), close=True)) as (channel, server, _):
        assert str(await lost(channel)).startswith("the answer was cut short after")
        assert [one.method for one in server.requests] == ["POST"]


@pytest.mark.parametrize("ident", [b"7", b"null"])
async def test_an_error_response_counts_whatever_its_status(ident: bytes) -> None:
    error = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"m","data":[1.0]}}'
    async with talking(says(plain(error % ident, "400 Bad")), None) as (channel, _, _clock):
        (answer,) = await collect(channel)
        assert b'"id":7' in answer
        assert b'"error":{"code":-32602,"message":"m","data":[1.0]}' in answer
    async with talking(says(plain(error % ident, "404 X")), None) as (channel, _, _clock):
        assert len(await collect(channel)) == 1


async def test_I6_a_cut_stream_is_resumed_where_it_stopped() -> None:
    plays = in_turn(
        says(stream_head() + chunk(b"retry: 250\n\n") + event(PROGRESS, "e1"), close=True),
        says(stream_head() + event(ASKED, "e2") + END),
        says(stream_head() + event(RESULT, "e3") + END),
    )
    async with talking(plays) as (channel, server, clock):
        assert await collect(channel) == [PROGRESS, ASKED, RESULT]
        gets = server.of("GET")
        assert [one.headers["last-event-id"] for one in gets] == ["e1", "e2"]
        for get in gets:
            assert get.headers["accept"] == "text/event-stream"
            assert get.headers["mcp-session-id"] == "s1"
            assert get.headers["mcp-protocol-version"] == "2025-11-25"
            assert get.headers["authorization"] == "Bearer c"
            assert "content-type" not in get.headers
        assert clock.slept == [0.25, 0.25]


async def test_an_error_event_is_a_cut_too() -> None:
    plays = in_turn(
        says(stream_head() + event(b"x", "e1", "error")), says(stream_head() + event(RESULT) + END)
    )
    async with talking(plays) as (channel, _, clock):
        assert await collect(channel) == [RESULT]
        assert clock.slept == [1.0]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_an_upstream_that_cannot_resume_is_asked_once(status: int) -> None:
    plays = in_turn(
        says(stream_head() + event(PROGRESS, "e1"), close=True), says(plain(b"", f"{status} No"))
    )
    async with talking(plays) as (channel, server, _):
        wrong = await lost(channel)
        # 2025-11-25 "Session Management": 404 to a session id is the end of the session.
        cut = "the stream was cut and the upstream cannot resume it"
        assert str(wrong) == (UNKNOWN_MEANWHILE if status == 404 else cut)
        assert wrong.status == status
        # The call was taken: that its session is gone does not say that it never ran (I3).
        clock = SystemClock()
        http = Http(UrlOptions(name="x", url="http://127.0.0.1:1"), clock)
        carrier = HttpCarrier(http, "s", [], clock)
        assert carrier.forgot(wrong) == (status == 404)
        assert not carrier.unrun(wrong)
        assert len(server.of("GET")) == 1


async def test_I5_resuming_is_given_up_after_five_fruitless_attempts_with_growing_pauses() -> None:
    plays = in_turn(
        says(stream_head() + event(PROGRESS, "e1"), close=True),
        says(plain(b"", "503 Busy")),
        says(stream_head() + END),
        says(close=True),
    )
    async with talking(plays) as (channel, server, clock):
        assert "5 attempts to resume it gave nothing" in str(await lost(channel))
        # A GET on a reused connection that breaks without a byte may be sent twice.
        assert len(server.of("GET")) in (5, 6)
        assert clock.slept == [1.0, 2.0, 4.0, 8.0, 16.0]


async def test_attempts_that_bear_fruit_are_not_counted() -> None:
    cut = [says(stream_head() + event(PROGRESS, f"e{number}"), close=True) for number in range(12)]
    async with talking(in_turn(*cut, says(stream_head() + event(RESULT)))) as (channel, server, _):
        assert await collect(channel) == [PROGRESS] * 12 + [RESULT]
        assert len(server.of("GET")) == 12


async def test_I10_one_message_is_bounded() -> None:
    big = b'{"jsonrpc":"2.0","id":7,"result":"%s"}' % (b"x" * 5000)
    for answer in (plain(big), stream_head() + event(big)):
        async with talking(says(answer), max_answer=4000) as (channel, _, _clock):
            assert "4000 bytes" in str(await lost(channel))


async def test_I11_closing_the_exchange_drops_the_stream_and_tells_the_upstream_nothing_else() -> None:
    async with talking(says(stream_head() + event(PROGRESS))) as (channel, server, _):
        coming = channel.exchange(REQUEST, HEADERS)
        assert await anext(coming) == PROGRESS
        await coming.aclose()
        await server.closed.wait()
        assert len(server.requests) == 1


async def test_send_expects_acceptance() -> None:
    plays = in_turn(
        says(plain(b"", "202 Accepted")), says(plain(b"no", "400 Bad")), says(plain(b"", "404 X"))
    )
    async with talking(plays) as (channel, server, _):
        note = b'{"jsonrpc":"2.0","method":"notifications/x"}'
        await channel.send(note, HEADERS)
        assert server.requests[0].body == note
        with pytest.raises(UpstreamLost, match="status 400") as caught:
            await channel.send(note, HEADERS)
        assert caught.value.status == 400
        with pytest.raises(UpstreamLost, match="no longer knows the session"):
            await channel.send(note, HEADERS)


async def test_close_ends_the_session_and_does_not_mind_a_refusal() -> None:
    async with talking(says(plain(b"", "405 No"))) as (channel, server, _):
        await channel.close()
        (request,) = server.requests
        assert (request.method, request.headers["mcp-session-id"]) == ("DELETE", "s1")
        assert request.headers["authorization"] == "Bearer c"
    async with talking(says()) as (channel, server, _):
        pass
    await channel.close()


async def test_close_without_a_session_says_nothing() -> None:
    async with talking(says(plain(b"")), None) as (channel, server, _):
        await channel.close()
        assert server.requests == []


async def resumed(channel: HttpChannel, place: str) -> list[bytes]:
    async with aclosing(channel.resume(b"7", place, HEADERS)) as coming:
        return [raw async for raw in coming]


async def test_I5_a_call_that_another_began_is_resumed_behind_an_event() -> None:
    plays = in_turn(
        says(stream_head() + event(ASKED, "e2"), close=True),
        says(stream_head() + event(RESULT, "e3") + END),
    )
    async with talking(plays) as (channel, server, clock):
        assert await resumed(channel, "e1") == [ASKED, RESULT]
        assert [(one.method, one.headers["last-event-id"]) for one in server.requests] == [
            ("GET", "e1"),
            ("GET", "e2"),
        ]
        # The first time nobody was just cut off.
        assert len(clock.slept) == 1


async def test_I5_who_takes_up_a_call_waits_while_the_other_connection_is_open() -> None:
    busy, nothing = says(plain(b"", "409 Conflict")), says(stream_head() + END)
    plays = in_turn(*[busy] * 4, *[nothing] * 8, says(stream_head() + event(RESULT, "e3") + END))
    async with talking(plays) as (channel, server, clock):
        assert await resumed(channel, "e1") == [RESULT]
        assert len(server.of("GET")) == 13
        assert max(clock.slept) <= 5


@pytest.mark.parametrize(
    ("answer", "session", "words"),
    [
        ("405 No", "s1", "the stream was cut and the upstream cannot resume it"),
        ("404 No", "s1", "the upstream no longer knows the session"),
        ("404 No", None, "the stream was cut and the upstream cannot resume it"),
    ],
)
async def test_I5_an_upstream_that_has_nothing_of_a_call_any_more_says_so_at_once(
    answer: str, session: str | None, words: str
) -> None:
    async with talking(says(plain(b"", answer)), session) as (channel, server, _):
        with pytest.raises(UpstreamLost, match=words):
            await resumed(channel, "e1")
        assert len(server.requests) == 1


async def test_messages_tell_their_place_and_events_without_one_only_before_the_first() -> None:
    told: list[str] = []
    stream = (
        event(b"", "e1") + event(PROGRESS, "e2") + event(b"", "e3") + event(ASKED) + event(RESULT, "e5")
    )
    async with talking(says(stream_head() + stream + END)) as (channel, _, _clock):
        channel.on_place = told.append
        found = await collect(channel)
        assert found == [PROGRESS, ASKED, RESULT]
        assert [place_of(raw) for raw in found] == ["e2", "e3", ""]
        assert told == ["e1"]
