"""Whose tasks a request may see (SEP-1686 section 8.1; design section 1)."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.exchange import Inbound
from gateway.session.principal import Principals
from gateway.tasks.model import Scope

SECRET: Final = b"a secret"
LATIN: Final = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), min_size=1)


def asked(**headers: str) -> Inbound:
    named = [(name.replace("_", "-"), content) for name, content in headers.items()]
    return Inbound("reports", "POST", named)


def test_I7_one_credential_is_one_principal_on_every_replica() -> None:
    alice = Principals(SECRET, None).principal_of(asked(authorization="Bearer alice"))
    assert alice == Principals(SECRET, None).principal_of(asked(authorization="Bearer alice"))
    assert alice != Principals(SECRET, None).principal_of(asked(authorization="Bearer bob"))
    assert alice != Principals(b"other", None).principal_of(asked(authorization="Bearer alice"))


@given(LATIN)
def test_a_principal_tells_nothing_of_its_credential(credential: str) -> None:
    principal = Principals(SECRET, None).principal_of(asked(authorization=credential))
    assert principal is not None
    assert re.fullmatch(r"[0-9a-f]{32}", principal)


def test_bytes_of_a_header_that_are_no_text_are_a_credential_too() -> None:
    principals = Principals(SECRET, None)
    one = principals.principal_of(asked(authorization="Bearer \udcff"))
    assert one is not None
    assert one != principals.principal_of(asked(authorization="Bearer \udcfe"))


def test_without_a_credential_nobody_is_known() -> None:
    assert Principals(SECRET, None).principal_of(asked()) is None
    assert Principals(SECRET, None).principal_of(asked(authorization="")) is None
    assert Principals(SECRET, None).principal_of(asked(x_user="alice")) is None


def test_a_trusted_header_is_the_only_one_that_counts() -> None:
    principals = Principals(SECRET, "X-User")
    alice = principals.principal_of(asked(x_user="alice", authorization="Bearer 1"))
    assert alice is not None
    assert alice == principals.principal_of(asked(x_user="alice", authorization="Bearer 2"))
    assert principals.principal_of(asked(authorization="Bearer 1")) is None
    assert principals.principal_of(asked(x_user="", authorization="Bearer 1")) is None


def test_a_header_and_a_credential_of_the_same_words_are_two_principals() -> None:
    named = Principals(SECRET, "x-user").principal_of(asked(x_user="alice"))
    assert named != Principals(SECRET, None).principal_of(asked(authorization="alice"))


def test_I7_a_scope_is_the_principals_where_one_is_known_and_else_the_sessions() -> None:
    principals = Principals(SECRET, None)
    assert principals.scope_of("u", "principal", "alice", "1") == Scope("u", "p-alice")
    assert principals.scope_of("u", "principal", "alice", None) == Scope("u", "p-alice")
    assert principals.scope_of("u", "principal", None, "1") == Scope("u", "s-1")
    assert principals.scope_of("u", "principal", None, None) is None


def test_I7_a_session_that_is_named_like_a_principal_is_not_that_one() -> None:
    principals = Principals(SECRET, None)
    assert principals.scope_of("u", "principal", None, "alice") != principals.scope_of(
        "u", "principal", "alice", None
    )
    assert principals.scope_of("u", "principal", None, "hared") != principals.scope_of(
        "u", "shared", None, None
    )


@pytest.mark.parametrize("principal", [None, "alice"])
@pytest.mark.parametrize("session", [None, "1"])
def test_a_shared_scope_is_everybodys_within_its_upstream(
    principal: str | None, session: str | None
) -> None:
    principals = Principals(SECRET, None)
    assert principals.scope_of("u", "shared", principal, session) == Scope("u", "shared")
    assert principals.scope_of("v", "shared", principal, session) == Scope("v", "shared")
