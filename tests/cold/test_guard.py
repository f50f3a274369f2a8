"""Against DNS rebinding (2025-11-25 transports, "Security Warning"): an invalid Origin is answered 403."""

from __future__ import annotations

import pytest

from gateway.front.guard import Guard
from gateway.protocol.errors import Refusal
from gateway.session.exchange import Inbound


def comes_in(guard: Guard, **headers: str) -> bool:
    try:
        guard.check(Inbound("reports", "POST", list(headers.items())))
    except Refusal as refusal:
        assert refusal.status == 403
        assert refusal.code == -32600
        assert refusal.message.startswith("Forbidden: this ")
        return False
    return True


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://LOCALHOST:3000",
        "http://127.0.0.1:6274",
        "http://[::1]:6274",
    ],
)
def test_pages_of_this_machine_may_call(origin: str) -> None:
    assert comes_in(Guard([], None), origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "https://localhost.evil.example",
        "https://evil.example:80",
        "https://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "http://evil.example@localhost",
        "http://evil.example\\@localhost",
        "http://evil.example#localhost",
        "http://evil.example/localhost",
        "http://localhost/path",
        "null",
        "localhost",
        "",
        "http://",
        "http://[",
        "http://[::1",
        "http://0x7f.1",
        "http://localhost.",
        "http://127.0.0.2",
        "http://localhost https://evil.example",
    ],
)
def test_other_pages_may_not(origin: str) -> None:
    assert not comes_in(Guard([], None), origin=origin)
    assert not comes_in(Guard(["https://app.example"], None), origin=origin)


def test_a_client_that_is_no_browser_names_no_origin() -> None:
    assert comes_in(Guard([], None))
    assert comes_in(Guard([], None), host="anything")


@pytest.mark.parametrize(
    "origin", ["https://app.example", "https://App.Example", "http://other.example:8080"]
)
def test_configured_origins_may_call(origin: str) -> None:
    assert comes_in(Guard(["https://app.example/", "http://OTHER.example:8080"], None), origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "http://app.example",
        "https://app.example:8443",
        "https://sub.app.example",
        "https://app.example.evil",
    ],
)
def test_an_origin_is_scheme_host_and_port(origin: str) -> None:
    assert not comes_in(Guard(["https://app.example"], None), origin=origin)


def test_a_star_lets_every_page_in() -> None:
    assert comes_in(Guard(["*"], None), origin="https://anything.example")
    assert comes_in(Guard(["*"], None), origin="null")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LocalHost:1", "127.0.0.1:8080", "[::1]:8080", "[::1]"]
)
def test_on_loopback_names_of_this_machine_are_served(host: str) -> None:
    assert comes_in(Guard([], []), host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "0.0.0.0:1",
    ],
)
def test_a_name_that_was_bound_to_this_machine_is_not(host: str) -> None:
    assert not comes_in(Guard([], []), host=host)


def test_a_request_without_a_host_is_not_served_on_loopback() -> None:
    assert not comes_in(Guard([], []))


def test_configured_hosts_are_served() -> None:
    guard = Guard([], ["Gateway.example"])
    assert comes_in(guard, host="gateway.example:443")
    assert comes_in(guard, host="localhost")
    assert not comes_in(guard, host="other.example")


def test_an_allowed_host_excuses_no_origin() -> None:
    assert not comes_in(Guard([], ["evil.example"]), host="evil.example", origin="https://evil.example")
