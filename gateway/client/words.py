"""The single words of the command line: what each may be, and what it means; cold."""

from __future__ import annotations

import argparse
import json
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gateway.config.units import read_duration
from gateway.protocol.envelope import dump, members, text_of

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def url_word(text: str) -> str:
    """Return an HTTP URL."""
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL like http://127.0.0.1:8080/mcp")
    return text


def pair_word(word: str) -> tuple[str, msgspec.Raw]:
    """Return a name and its value: JSON where it is valid, else a string; `:=` insists on JSON."""
    name, equals, text = word.partition("=")
    insist = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not key=value")
    found = _json(text)
    if found is not None:
        return name, found
    if insist:
        raise argparse.ArgumentTypeError(f"the value of {name} is not valid JSON: {text!r}")
    return name, msgspec.Raw(_encoded(json.dumps(text, ensure_ascii=False)))


def object_word(text: str) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object."""
    found = _json(text.strip())
    if found is None or not bytes(found).startswith(b"{"):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text!r}")
    return members(bytes(found))


def _json(text: str) -> msgspec.Raw | None:
    """Return valid JSON as it was spelled (RFC 8259: no NaN), so that numbers keep their digits."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(_encoded(text))


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"not valid UTF-8: {text!r}") from None


def header_word(text: str) -> tuple[str, str]:
    """Return an HTTP header; a mistake does not repeat the text, which may hold a secret."""
    name, colon, content = text.partition(":")
    if not colon or _TOKEN.fullmatch(name.strip()) is None or not content.strip().isprintable():
        raise argparse.ArgumentTypeError("a header looks like 'Name: value'")
    return name.strip(), content.strip()


def keep_alive_word(text: str) -> int | None:
    """Return a duration in milliseconds, `None` for ever."""
    if text == "forever":
        return None
    try:
        return read_duration(text, minimum=0)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def count_word(text: str) -> int:
    """Return a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def request_id_word(text: str) -> bytes:
    """Return 7 as a number, "7" in quotes and anything else as a string."""
    number = text.removeprefix("-")
    if (number.isascii() and number.isdigit()) or text_of(text.encode()) is not None:
        return text.encode()
    return dump(text)
