"""Versions, eras and codes: the tables of the protocol."""

from __future__ import annotations

import pytest

from gateway.protocol.codes import HTTP_STATUS, http_status
from gateway.protocol.eras import HANDSHAKE, allows_batch, is_stateless


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_versions_up_to_2025_11_25_begin_with_a_handshake(version: str) -> None:
    assert version in HANDSHAKE
    assert not is_stateless(version)


def test_2026_07_28_is_stateless_and_so_is_what_follows() -> None:
    assert is_stateless("2026-07-28")
    assert is_stateless("2027-01-01")


def test_without_a_version_a_request_is_of_the_handshake_era() -> None:
    assert not is_stateless(None)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ("2024-11-05", True),
        ("2025-03-26", True),
        ("2025-06-18", False),
        ("2025-11-25", False),
        ("2026-07-28", False),
        (None, True),
    ],
)
def test_batches_went_with_2025_06_18_and_no_version_means_2025_03_26(
    version: str | None, allowed: bool
) -> None:
    assert allows_batch(version) is allowed


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (-32700, 400),
        (-32600, 400),
        (-32601, 200),
        (-32602, 200),
        (-32603, 200),
        (-32001, 404),
        (-32003, 502),
        (-32029, 429),
        (1, 200),
    ],
)
def test_each_code_travels_under_one_status(code: int, status: int) -> None:
    assert http_status(code) == status


def test_codes_of_our_own_are_in_the_range_for_servers() -> None:
    own = [code for code in HTTP_STATUS if not -32768 <= code <= -32100]
    assert all(-32099 <= code <= -32000 for code in own)


def test_an_upstream_that_is_away_costs_no_client_its_session() -> None:
    assert http_status(-32003, answers_request=True) == 200
    assert http_status(-32700, answers_request=True) == 400
    assert http_status(-32029, answers_request=True) == 429
