"""The six errors of the house. Foreign exceptions are mapped to them in the room that meets them."""

from __future__ import annotations

from typing import Any, Final

_SERVER_FAULT: Final = 500


class GatewayError(Exception):
    """What every error of the gateway is."""


class Refusal(GatewayError):
    """A request that is answered with a JSON-RPC error (JSON-RPC 2.0 section 5.1).

    `code` and `message` go out as they are; `data`, where given, is the error's `data` member;
    `status` is the HTTP status where the front is HTTP, `None` for the one that belongs to the code;
    `retry_after` is in seconds and becomes the `Retry-After` header (RFC 9110 section 10.2.3);
    `request_id` is the id as JSON bytes where the message was too broken to be peeked at; `challenge`
    becomes the `WWW-Authenticate` header (RFC 9110 section 11.6.1).
    """

    def __init__(
        self,
        code: int,
        message: str,
        data: dict[str, Any] | None = None,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        request_id: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.challenge: str | None = None
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.retry_after = retry_after

    def __repr__(self) -> str:
        return f"Refusal({self.code}, {self.message!r})"


class IllegalMove(GatewayError):
    """A status change that the state machine does not allow (SEP-1686 section 4.3)."""

    def __init__(self, status: str, target: str) -> None:
        super().__init__(f"a task cannot move from {status} to {target}")
        self.status = status
        self.target = target


class StoreAway(GatewayError):
    """The store did not answer; nothing is known about what it did."""


class UpstreamLost(GatewayError):
    """The upstream did not answer as a server must; the message says how, in words for a person.

    `status` is the HTTP status of the upstream's refusal where there was one; `sent` is false only
    where the upstream surely never saw the request; `where` is its address, which clients need not
    know; `challenge` its `WWW-Authenticate` header, which they must. `busy` is the number of connections
    that there may be, where all of them are in use.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        sent: bool = True,
        where: str = "",
        challenge: str | None = None,
        busy: int | None = None,
    ) -> None:
        super().__init__(message)
        self.busy = busy
        self.challenge = challenge
        self.status = status
        self.sent = sent
        self.where = where

    @property
    def refused(self) -> bool:
        """Whether the upstream refused the request itself, as it would again."""
        return self.status is not None and self.status < _SERVER_FAULT

    def tell(self) -> str:
        """Return the words for operators, with the address."""
        return f"{self} ({self.where})" if self.where else str(self)


class LostMidway(UpstreamLost):
    """The request was taken and its answer cut off; `status` is that of the refusal to go on with it."""

    @property
    def refused(self) -> bool:
        """Never: it was taken."""
        return False


class ConfigError(GatewayError):
    """A mistake in the configuration; each line of the message names file, line and what is right."""


class PluginError(GatewayError):
    """A plugin that cannot be loaded, validated or started."""
