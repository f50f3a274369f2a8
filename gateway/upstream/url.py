"""The URL of an upstream, taken apart once: where to connect, what to ask for, whose credentials."""

from __future__ import annotations

import base64
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

from gateway.protocol.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP URL: `target` is the request target with its query, `authority` the Host header.

    `authorization` is the Basic credential that stood in the URL (RFC 7617), if one did.
    """

    scheme: str
    host: str
    port: int
    target: str
    authority: str
    authorization: str | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def where(self) -> str:
        """Host and port, for a person; no credentials, no path."""
        return f"{_bracketed(self.host)}:{self.port}"

    def __repr__(self) -> str:
        return f"<Url {self.scheme}://{self.authority}>"


def parse(text: str) -> Url:
    """Take a URL apart; raise `ConfigError` that says what is wrong with it."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
        host = (parts.hostname or "").encode("ascii" if _is_ascii(parts.hostname) else "idna").decode()
    except ValueError as wrong:
        raise ConfigError(f"the URL of the upstream is not valid: {wrong}") from None
    if parts.scheme not in _PORTS:
        raise ConfigError("the URL of the upstream must begin with http:// or https://")
    if not host:
        raise ConfigError("the URL of the upstream names no host")
    default = _PORTS[parts.scheme]
    authority = _bracketed(host) if port in (None, default) else f"{_bracketed(host)}:{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return Url(
        scheme=parts.scheme,
        host=host,
        port=default if port is None else port,
        target=f"{path}?{query}" if query else path,
        authority=authority,
        authorization=_basic(parts.username, parts.password),
    )


def resolve(base: Url, reference: str) -> Url:
    """Return the URL that a reference seen on `base` means; raise `ConfigError` where it is none."""
    return parse(urljoin(f"{base.scheme}://{base.authority}{base.target}", reference.strip()))


def _is_ascii(host: str | None) -> bool:
    return host is None or host.isascii()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None and password is None:
        return None
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
