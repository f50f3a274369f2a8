"""What the bench upstream answers, known to both ends so that the load can verify each answer.

The large results are lines of JSON inside a JSON string, with escapes and two-byte characters every few
bytes: a run of one letter would flatter whoever scans it.
"""

from __future__ import annotations

import json
from typing import Final

PROGRESS_EVENTS: Final = 5
FIRST_WAIT: Final = 0.02  # seconds, also of `slow` and `told`
PROTOCOL_VERSION: Final = "2025-11-25"


def _text(size: int) -> str:
    lines: list[str] = []
    length = number = 0
    while length < size:
        line = f'{{"row": {number}, "place": "Zürich\\u00df", "ok": true, "value": {number * 0.37:.2f}}}\n'
        lines.append(line)
        length += len(line)
        number += 1
    return "".join(lines)[:size]


def _result(text: str) -> bytes:
    whole = {"content": [{"type": "text", "text": text}], "isError": False}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


TEXTS: Final[dict[str, str]] = {
    "small": _text(120),
    "kb1": _text(850),  # 1 kB as JSON
    "kb100": _text(100_000),
    "mb1": _text(1_000_000),
    "sse": _text(120),
    "first": _text(120),
    "slow": _text(120),
    "nudge": "nudged",
    "held": "held until released",
    "hold": "held from now on",
    "release": "released",
    "told": "",
}
RESULTS: Final[dict[str, bytes]] = {name: _result(text) for name, text in TEXTS.items()}
STREAMED: Final = frozenset({"sse", "first"})
NUDGE: Final = b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'


def answer(ident: bytes, tool: str) -> bytes:
    """Return the JSON-RPC response of a tool; `ident` is the request's id as JSON bytes."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ident, RESULTS[tool])


def told(ident: bytes, when: float) -> bytes:
    """Return the response of `told`: the moment at which it is sent (`time.perf_counter`)."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (ident, _result(repr(when)))


def progress(token: bytes, number: int) -> bytes:
    """Return a progress notification; `token` is the progress token as JSON bytes."""
    return (
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%b,"progress":%d,"total":%d}}' % (token, number, PROGRESS_EVENTS)
    )


def events(ident: bytes, token: bytes, tool: str) -> list[bytes]:
    """Return the messages of a streamed answer, the response last."""
    count = PROGRESS_EVENTS if tool == "sse" else 1
    return [*(progress(token, number) for number in range(1, count + 1)), answer(ident, tool)]
