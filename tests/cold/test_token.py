"""Session ids: any replica with the secret opens them, nobody else makes one (2025-11-25 transports)."""

from __future__ import annotations

import base64
import random
import secrets
import string
from typing import Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.errors import Refusal
from gateway.session.token import MARK, MAX_TOKEN, Sealer, Session, derive

SECRET: Final = b"a secret of some length"
ONE: Final = Session("tag", "reports", "up-1", link=False, version="2025-11-25", own_tasks=False)
SESSIONS: Final = st.builds(
    Session,
    st.text(st.characters(codec="utf-8")),
    st.text(st.characters(codec="utf-8")),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=200),
    link=st.booleans(),
    version=st.sampled_from(["2024-11-05", "2025-11-25", ""]),
    own_tasks=st.booleans(),
    initialize=st.none() | st.binary(max_size=400),
)


def fresh(secret: bytes = SECRET) -> Sealer:
    """Return a sealer that has seen no token yet, as another replica's."""
    return Sealer(secret)


def raw_of(token: str) -> bytes:
    text = token.removeprefix(MARK)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def token_of(raw: bytes) -> str:
    return MARK + base64.urlsafe_b64encode(raw).decode().rstrip("=")


@given(SESSIONS)
def test_I6_every_replica_with_the_secret_opens_a_session(session: Session) -> None:
    token = fresh().seal(session)
    assert fresh().open(token) == session
    assert all(0x21 <= ord(char) <= 0x7E for char in token)
    assert len(token) <= MAX_TOKEN


@given(SESSIONS)
def test_another_secret_opens_nothing(session: Session) -> None:
    assert fresh(b"another secret").open(fresh().seal(session)) is None


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_token_with_one_bit_changed_does_not_open(place: int, bit: int) -> None:
    raw = bytearray(raw_of(fresh().seal(ONE)))
    raw[place % len(raw)] ^= 1 << bit
    assert fresh().open(token_of(bytes(raw))) is None


def test_a_token_with_one_character_changed_does_not_open() -> None:
    for length in range(12):
        token = fresh().seal(msgspec.structs.replace(ONE, tag="t" * length))
        for place in (0, len(MARK), len(token) // 2, -2, -1):
            for char in string.ascii_letters + string.digits + "-_=.~":
                forged = list(token)
                forged[place] = char
                if "".join(forged) != token:
                    assert fresh().open("".join(forged)) is None


@given(st.integers(min_value=0))
def test_a_token_that_was_cut_does_not_open(length: int) -> None:
    token = fresh().seal(ONE)
    assert fresh().open(token[: length % len(token)]) is None
    assert fresh().open(token[length % len(token) + 1 :]) is None


@pytest.mark.parametrize("behind", ["=", "==", "===", "A", "AA", " ", "\n", "\0", "."])
def test_a_token_with_something_behind_does_not_open(behind: str) -> None:
    for length in range(4):
        token = fresh().seal(msgspec.structs.replace(ONE, tag="t" * length))
        assert fresh().open(token + behind) is None


@given(st.text() | st.text(string.ascii_letters + string.digits + "-_").map(lambda text: MARK + text))
@example("")
@example(MARK)
@example(MARK + "é")
@example(MARK + "\ud800")
@example(MARK + "A" * 100_000)
@example("null")
def test_what_was_not_sealed_here_does_not_open(text: str) -> None:
    assert fresh().open(text) is None


def test_what_is_sealed_for_another_purpose_does_not_open() -> None:
    assert derive(SECRET, b"session token") != derive(SECRET, b"principal")
    assert len(derive(b"", b"")) == 32


def test_two_tokens_of_one_session_differ_and_tell_nothing() -> None:
    sealer = fresh()
    tokens = {sealer.seal(ONE) for _ in range(50)}
    assert len(tokens) == 50
    assert not any(b"reports" in raw_of(token) or b"up-1" in raw_of(token) for token in tokens)


@pytest.mark.parametrize(
    "initialize",
    [
        b"x" * 70_000,
        b"x" * 5_000_000,
        random.Random(1).randbytes(20_000),
        random.Random(1).randbytes(5_200),
    ],
    ids=["70 kB that shrink", "5 MB that shrink", "20 kB that do not", "just too much"],
)
def test_I6_a_large_initialize_is_left_out_rather_than_the_session(initialize: bytes) -> None:
    sealer = fresh()
    token = sealer.seal(msgspec.structs.replace(ONE, initialize=initialize))
    assert len(token) <= MAX_TOKEN
    elsewhere = fresh().open(token)
    assert elsewhere is not None
    assert elsewhere.initialize in (None, initialize)
    assert msgspec.structs.replace(elsewhere, initialize=None) == ONE
    assert sealer.open(token) == elsewhere


@pytest.mark.parametrize("length", [100, 1_000, 3_500, 8_000, 200_000])
def test_I6_a_session_of_the_upstream_is_passed_on_or_refused_in_words(length: int) -> None:
    for name in (secrets.token_urlsafe(length), "x" * length):
        session = msgspec.structs.replace(ONE, upstream_id=name)
        try:
            token = fresh().seal(session)
        except Refusal as refusal:
            assert len(name) > 4_000
            assert "session id is too long" in refusal.message
        else:
            assert fresh().open(token) == session


def test_I10_the_sessions_that_a_sealer_remembers_are_bounded() -> None:
    sealer = fresh()
    first = sealer.seal(ONE)
    for number in range(20_001):
        sealer.seal(msgspec.structs.replace(ONE, tag=str(number)))
    assert repr(sealer) == "<Sealer, 10000 known>"
    assert sealer.open(first) == ONE


def test_I6_a_session_of_another_version_is_opened_as_far_as_it_is_known() -> None:
    class Later(Session, frozen=True, array_like=True):
        more: int = 1

    class Earlier(msgspec.Struct, frozen=True, array_like=True):
        tag: str
        upstream: str
        upstream_id: str | None
        link: bool
        version: str
        own_tasks: bool
        initialize: bytes | None = None

    members = {name: getattr(ONE, name) for name in Earlier.__struct_fields__}
    later = Later(**members, principal=None, crossed=False)
    assert fresh().open(fresh().seal(later)) == ONE
    # The sealer asks for no more than the members that there have always been.
    assert fresh().open(fresh().seal(Earlier(**members))) == ONE  # pyright: ignore[reportArgumentType]
