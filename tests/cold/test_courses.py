"""Courses: bound to their task and secret, without credentials where the secret is in the store."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from gateway.session.courses import Course, Courses
from gateway.session.token import Session
from gateway.tasks.model import Scope, TaskKey

SECRET: Final = b"a secret of some length"
KEY: Final = TaskKey(Scope("reports", "alice"), "t1")
SESSION: Final = Session("tag", "reports", "up-1", link=False, version="2025-11-25", own_tasks=False)
COURSE: Final = Course(
    b'"mtg-call.1"', [("authorization", "Bearer s3cret")], False, True, False, True, session=SESSION
)


def courses(secret: bytes = SECRET, *, keeps: bool = True) -> Courses:
    return Courses(secret, keeps_credentials=keeps)


def test_any_replica_with_the_secret_opens_a_course() -> None:
    sealed = courses().seal(COURSE, KEY)
    assert courses().open(sealed, KEY) == COURSE
    assert b"s3cret" not in sealed
    assert b"up-1" not in sealed


@pytest.mark.parametrize(
    "key",
    [
        TaskKey(Scope("reports", "alice"), "t2"),
        TaskKey(Scope("reports", "bob"), "t1"),
        TaskKey(Scope("report", "salice"), "t1"),
    ],
)
def test_I7_a_course_is_of_no_use_at_another_task(key: TaskKey) -> None:
    sealed = courses().seal(COURSE, KEY)
    assert courses().open(sealed, key) is None
    assert courses().open_request(sealed, KEY) is None


def test_a_course_of_another_secret_or_none_at_all_is_no_course() -> None:
    sealed = courses().seal(COURSE, KEY)
    assert courses(b"another secret").open(sealed, KEY) is None
    for broken in (b"", b"x", sealed[:-1], sealed + b"x"):
        assert courses().open(broken, KEY) is None


def test_members_of_a_later_version_are_passed_over() -> None:
    later = [*msgspec.msgpack.decode(msgspec.msgpack.encode(COURSE)), "of a later version"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=Course) == COURSE


def test_what_is_too_large_for_a_record_is_no_course() -> None:
    large = msgspec.structs.replace(COURSE, headers=[("x-large", "x" * 70_000)])
    assert courses().seal(large, KEY) == b""


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("accept", True),
        ("accept-language", True),
        ("user-agent", True),
        ("mcp-protocol-version", True),
        ("sec-fetch-mode", True),
        ("authorization", False),
        ("cookie", False),
        ("x-api-key", False),
        ("x-anything-else", False),
        ("sec-websocket-key", False),
        ("X-Forwarded-For", True),
        ("X-Forwarded-Proto", True),
        ("X-Forwarded-User", True),
        ("X-Forwarded-Access-Token", False),
        ("X-Forwarded-Client-Cert", False),
    ],
)
def test_headers_that_may_hold_credentials_are_left_out_where_the_secret_is_the_stores(
    name: str, kept: bool
) -> None:
    headers = [(name, "value")]
    assert courses().kept(headers) == (headers, False)
    assert courses(keeps=False).kept(headers) == (headers if kept else [], not kept)
