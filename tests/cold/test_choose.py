"""Which dialect reads a request, and which one a task is told in (design section 3)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.dialects.choose import Dialects, asker, described_by, reader
from gateway.dialects.port import About
from gateway.dialects.sep1686 import TASK_KEY, Sep1686
from gateway.dialects.sep2663 import Sep2663
from gateway.dialects.v2025_11_25 import Tasks20251125
from gateway.protocol.envelope import Envelope, peek
from gateway.protocol.eras import HANDSHAKE
from gateway.protocol.errors import Refusal
from gateway.tasks.model import DialectName
from tests.cold import told

DIALECTS: Final[Dialects] = {"a": Sep1686(), "b": Tasks20251125(), "c": Sep2663()}
OLD: Final = (*HANDSHAKE[:-1], "", None)
A_WISH: Final = f'"_meta":{{"{TASK_KEY}":{{"taskId":"t"}}}}'


def request(method: str, params: str = '{"taskId":"t"}') -> Envelope:
    return peek(f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode())


def read(version: str | None, method: str) -> tuple[str, About] | None:
    found = reader(DIALECTS, version, request(method))
    return None if found is None else (found[0].name, found[1])


def wished(version: str | None, params: str, method: str = "tools/call") -> str | None:
    found = asker(DIALECTS, version, request(method, params))
    return None if found is None else found.name


@pytest.mark.parametrize("kind", ["get", "result", "list", "cancel"])
def test_the_newest_version_reads_by_b(kind: Any) -> None:
    about = About(kind) if kind == "list" else About(kind, "t")
    assert read("2025-11-25", f"tasks/{kind}") == ("b", about)


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_deletion_is_read_by_a_in_every_version(version: str) -> None:
    assert read(version, "tasks/delete") == ("a", About("delete", "t"))


@pytest.mark.parametrize("version", OLD)
def test_older_versions_read_by_a_alone(version: str | None) -> None:
    assert read(version, "tasks/get") == ("a", About("get", "t"))
    assert read(version, "tasks/result") == ("a", About("result", "t"))
    assert read(version, "tasks/list") == ("a", About("list"))
    assert read(version, "tasks/cancel") is None


@pytest.mark.parametrize("version", [*HANDSHAKE, None])
@pytest.mark.parametrize("method", ["tasks/update", "tools/call", "ping", "subscriptions/listen"])
def test_other_methods_are_not_about_tasks(version: str | None, method: str) -> None:
    assert read(version, method) is None


def test_I12_a_malformed_request_is_refused_by_the_dialect_that_reads_it() -> None:
    for version in ("2025-06-18", "2025-11-25"):
        with pytest.raises(Refusal) as caught:
            reader(DIALECTS, version, request("tasks/get", '{"taskId":7}'))
        assert caught.value.code == -32602


@pytest.mark.parametrize("version", [*HANDSHAKE, None])
def test_a_wish_in_dialect_a_is_good_in_every_version(version: str | None) -> None:
    assert wished(version, f"{{{A_WISH}}}") == "a"
    assert wished(version, f"{{{A_WISH}}}", "resources/read") == "a"


def test_a_wish_in_dialect_b_is_good_from_its_version_on() -> None:
    assert wished("2025-11-25", '{"name":"t","task":{}}') == "b"
    assert wished("2025-11-25", '{"name":"t","task":"junk"}') == "b"
    assert wished("2025-11-25", '{"task":{}}', "resources/read") is None
    for version in OLD:
        assert wished(version, '{"name":"t","task":{}}') is None


def test_of_two_wishes_the_one_that_names_the_task_counts() -> None:
    assert wished("2025-11-25", f'{{"task":{{}},{A_WISH}}}') == "a"


@pytest.mark.parametrize("version", [*HANDSHAKE, None])
def test_a_plain_request_wishes_nothing(version: str | None) -> None:
    assert wished(version, '{"name":"t","arguments":{"task":{}}}') is None


@pytest.mark.parametrize(
    ("made", "asks", "told_in"),
    [
        ("a", "a", "a"),
        ("a", "b", "a"),
        ("b", "a", "b"),
        ("b", "b", "b"),
        ("c", "a", "a"),
        ("c", "b", "b"),
        ("none", "a", "a"),
        ("none", "b", "b"),
        ("a", "c", "c"),
        ("b", "c", "c"),
        ("c", "c", "c"),
        ("none", "c", "c"),
    ],
)
def test_a_task_is_told_in_its_own_dialect_within_its_era(
    made: DialectName, asks: DialectName, told_in: str
) -> None:
    assert described_by(DIALECTS, told.task(dialect=made), DIALECTS[asks]).name == told_in
