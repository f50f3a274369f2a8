"""Kinds of values: how each is read, shown, described to editors and named in the reference.

A kind is the annotation of a field (`Annotated[int, DURATION]`). The validation, the JSON Schema
and the reference page all ask it, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gateway.config import units

_UNLIMITED: Final = (None, "unlimited")


@dataclass(frozen=True)
class Kind:
    """One kind of value. `words` names it; `read` raises `ValueError`; `show` writes it back."""

    words: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str]
    schema: dict[str, Any] = field(hash=False)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.schema)


def duration(minimum: str = "1ms") -> Kind:
    """Return the kind of durations from `minimum` on; the value is milliseconds."""
    least = units.read_duration(minimum, minimum=0)
    schema = {"type": ["string", "number"], "pattern": units.DURATION_PATTERN, "minimum": 0}
    return Kind("duration", partial(units.read_duration, minimum=least), units.show_duration, schema)


def size(minimum: str = "1B") -> Kind:
    """Return the kind of sizes from `minimum` on; the value is bytes."""
    least = units.read_size(minimum)
    schema = {"type": ["string", "integer"], "pattern": units.SIZE_PATTERN, "minimum": 1}
    return Kind("size", partial(units.read_size, minimum=least), units.show_size, schema)


def count(minimum: int = 1, maximum: int = units.MAX_COUNT) -> Kind:
    """Return the kind of whole numbers within bounds."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return Kind("number", partial(units.read_count, minimum=minimum, maximum=maximum), str, schema)


def _read_with(read: Callable[[Any], Any], value: Any, word: str) -> Any:
    """Read a value for which `word` would be right, too. Raises `ValueError`."""
    try:
        return read(value)
    except ValueError as mistake:
        raise ValueError(f"{mistake}, or {word}") from None


def or_unlimited(kind: Kind) -> Kind:
    """Return the kind that also takes `unlimited` (or null), whose value is `None`."""

    def read(value: Any) -> Any:
        return None if value in _UNLIMITED else _read_with(kind.read, value, "unlimited")

    def show(value: Any) -> str:
        return "unlimited" if value is None else kind.show(value)

    return Kind(
        f"{kind.words} or `unlimited`", read, show, {"anyOf": [kind.schema, {"enum": ["unlimited", None]}]}
    )


DURATION: Final = duration()
RATE: Final = Kind(
    "rate or `off`",
    units.read_rate,
    lambda value: "off" if value is None else value,
    {"anyOf": [{"type": "string", "pattern": units.RATE_PATTERN}, {"enum": ["off", False]}]},
)
PORT: Final = count(0, 65_535)


def _read_workers(value: Any) -> int:
    return 0 if value == "auto" else _read_with(_COUNT_OF_WORKERS, value, "auto")


MAX_WORKERS: Final = 256
_COUNT_OF_WORKERS: Final = partial(units.read_count, minimum=0, maximum=MAX_WORKERS)
WORKERS: Final = Kind(
    "number or `auto`",
    _read_workers,
    lambda value: str(value) if value else "auto",
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_WORKERS}, {"enum": ["auto"]}]},
)


def _name(value: str) -> str:
    allowed = "letters, digits, '.', '_' and '-', up to 63 characters, the first a letter or digit"
    head, rest = value[:1], value[1:]
    plain = value.isascii() and head.isalnum() and all(c.isalnum() or c in "._-" for c in rest)
    if not plain or len(value) > 63:
        raise ValueError(f"{units.quote(value)} cannot name an upstream; use {allowed}")
    if value.lower() in RESERVED:
        raise ValueError(f"{units.quote(value)} cannot name an upstream: the gateway uses that path itself")
    return value


RESERVED: Final = frozenset({"metrics", "healthz", "readyz", "mcp", ".well-known"})
UpstreamName = Annotated[str, AfterValidator(_name)]

_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OWN_HEADERS: Final = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "accept",
        "mcp-session-id",
    }
)


def _header_name(value: str) -> str:
    if not value or not set(value) <= _TOKEN:
        raise ValueError(f"{units.quote(value)} is not the name of a header")
    if value.lower() in _OWN_HEADERS:
        raise ValueError(f"the header {units.quote(value)} is set by the gateway itself")
    return value


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if any((ord(c) < 32 and c != "\t") or ord(c) == 127 for c in text):
        raise ValueError("the value of a header cannot hold line breaks or control characters")
    return value


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]
