"""What replicas write to each other about links. Cold: bytes in, values out.

The one that asks opens a *line* for each thing it asks (a call, a message, to listen, an end), and
numbers its lines; the owner of the link answers with *frames*, numbered within the line. Letters may
be lost and come twice, so that the one that asks says again and again how far it has got: the owner
sends what is missing once more, and names lines that it does not know.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from gateway.protocol.errors import GatewayError, Refusal, UpstreamLost

Kind = Literal["call", "send", "listen", "drop"]
Sort = Literal["message", "last", "end", "lost", "refused", "absent"]
LASTS: Final = frozenset({"last", "end", "lost", "refused", "absent"})


class Asked(msgspec.Struct, array_like=True, frozen=True, tag="ask"):
    """The beginning of a line. `parcel` names the message where it is large; `headers` are sealed."""

    sender: str
    line: int
    kind: Kind
    upstream: str
    tag: str
    message: bytes
    parcel: str = ""
    headers: bytes = b""


class Polled(msgspec.Struct, array_like=True, frozen=True, tag="poll"):
    """How far lines have got: number, frames that came, frames that were used. `done` are given up.

    `done` lines have the frames that were used as well. `serial` numbers these letters.
    """

    sender: str
    serial: int
    lines: list[tuple[int, int, int]]
    done: list[tuple[int, int]]


class Frame(msgspec.Struct, array_like=True, frozen=True, tag="frame"):
    """One message of a line, or its end: none comes after `LASTS`.

    `last` is a message, the response to a call; `absent`: the link is not there, and nothing was done.
    """

    sender: str
    line: int
    number: int
    sort: Sort
    content: bytes = b""
    parcel: str = ""


class Pulse(msgspec.Struct, array_like=True, frozen=True, tag="pulse"):
    """The answer to the `Polled` of a serial: the owner lives, and does not know these lines."""

    sender: str
    serial: int
    unknown: list[int]


Letter: TypeAlias = Asked | Polled | Frame | Pulse
_decoder: Final = msgspec.msgpack.Decoder(Asked | Polled | Frame | Pulse)
_encoder: Final = msgspec.msgpack.Encoder()


def pack(letter: Letter) -> bytes:
    """Return a letter as bytes."""
    return _encoder.encode(letter)


def read(data: bytes) -> Letter | None:
    """Return a letter, `None` for one that is not understood (of a later version, maybe)."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


class _Lost(msgspec.Struct, array_like=True, frozen=True):
    words: str
    status: int | None
    sent: bool
    where: str
    challenge: str | None


class _Refused(msgspec.Struct, array_like=True, frozen=True):
    code: int
    message: str
    data: dict[str, Any] | None
    status: int | None
    retry_after: float | None


def pack_error(wrong: GatewayError) -> tuple[Sort, bytes]:
    """Return an error as the end of a line."""
    if isinstance(wrong, Refusal):
        refused = _Refused(wrong.code, wrong.message, wrong.data, wrong.status, wrong.retry_after)
        return "refused", _encoder.encode(refused)
    if not isinstance(wrong, UpstreamLost):
        wrong = UpstreamLost(str(wrong))
    lost = _Lost(str(wrong), wrong.status, wrong.sent, wrong.where, wrong.challenge)
    return "lost", _encoder.encode(lost)


def read_error(sort: Sort, content: bytes) -> GatewayError:
    """Return the error that a line ended with."""
    try:
        if sort == "refused":
            no = msgspec.msgpack.decode(content, type=_Refused)
            return Refusal(no.code, no.message, no.data, status=no.status, retry_after=no.retry_after)
        lost = msgspec.msgpack.decode(content, type=_Lost)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return UpstreamLost("another replica ended the call with an error that is not understood")
    return UpstreamLost(
        lost.words, status=lost.status, sent=lost.sent, where=lost.where, challenge=lost.challenge
    )
