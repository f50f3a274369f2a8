"""Messages as lines: bytes in, whole lines out, of bounded length."""

from __future__ import annotations


class Lines:
    """Feed it bytes as they come, get whole lines without their ends; empty ones vanish."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def __repr__(self) -> str:
        return f"<Lines {self._size} bytes waiting>"

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes; raise `ValueError` for one of more than `limit` bytes.

        Lines before the one that is too long are lost: what follows it could not be trusted anyway.
        """
        *whole, rest = data.split(b"\n")
        if whole and self._parts:
            whole[0] = b"".join([*self._parts, whole[0]])
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > self._limit or any(len(line) > self._limit for line in whole):
            raise ValueError(f"a line longer than {self._limit} bytes")
        return [line for line in (part.strip(b"\r\t ") for part in whole) if line]


def one_line(message: bytes) -> bytes:
    """Return a JSON message without line breaks, else byte for byte.

    In valid JSON they stand between tokens only (RFC 8259 section 7), where a space means the same.
    """
    if b"\n" in message or b"\r" in message:
        return message.replace(b"\r", b" ").replace(b"\n", b" ")
    return message
