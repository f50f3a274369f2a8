"""Lone surrogate escapes: JSON allows them (RFC 8259 section 8.2), the decoder does not.

They are shielded by escapes that it takes, and put back in what was cut out, so that the bytes of a
message stay what they were.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

# A pair, a lone half, or any other escape: scanned in order, so that an escaped backslash is no escape.
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
# Noncharacters (Unicode section 23.7): hardly ever in a text, and one that is not there is chosen.
_MARKS: Final = tuple(b"\\ufdd%x" % digit for digit in range(16))


class Shielded(msgspec.Struct, frozen=True):
    """JSON without lone surrogates, and how to have them back."""

    data: bytes
    mark: bytes

    def restore(self, part: bytes) -> bytes:
        """Return a part of the data as it was."""
        return (
            re.sub(re.escape(self.mark) + rb"([0-9a-fA-F]{4})", rb"\\u\1", part)
            if self.mark in part
            else part
        )

    def restore_text(self, text: str) -> str:
        """Return decoded text of the data as it was, lone surrogates and all."""
        mark = chr(int(self.mark[2:], 16))
        if mark not in text:
            return text
        return re.sub(mark + "([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)


def _utf8(mark: bytes) -> bytes:
    return chr(int(mark[2:], 16)).encode()


def replace(text: str) -> str:
    """Return text with U+FFFD for each lone surrogate."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shield(raw: bytes) -> Shielded | None:
    """Return JSON with its lone surrogates shielded, `None` where it has none."""
    lowered = raw.lower()
    mark = next((mark for mark in _MARKS if mark not in lowered and _utf8(mark) not in raw), None)
    if mark is None or b"\\ud" not in lowered:
        return None
    data = _ESCAPE.sub(lambda found: mark + found[1] if found[1] else found[0], raw)
    return None if data == raw else Shielded(data, mark)
