"""JSON-RPC error codes and the HTTP status of each; one table."""

from __future__ import annotations

from typing import Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# Codes that the protocol defines (2026-07-28 basic, "Error Codes").
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
# Implementation-defined server errors (JSON-RPC 2.0 section 5.1: -32000 to -32099).
UPSTREAM_UNAVAILABLE: Final = -32003
SESSION_NOT_FOUND: Final = -32001
LIMIT_REACHED: Final = -32029

HTTP_STATUS: Final[dict[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 200,
    INVALID_PARAMS: 200,
    INTERNAL_ERROR: 200,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    SESSION_NOT_FOUND: 404,
    UPSTREAM_UNAVAILABLE: 502,
    LIMIT_REACHED: 429,
}


def http_status(code: int, *, answers_request: bool = False) -> int:
    """Return the HTTP status an error of this code travels under; 200 where JSON-RPC says it all.

    A request whose upstream is away is answered with 200: clients of the official Python package up
    to 1.30 end the whole session, with all that runs in it, at any other status but 404.
    """
    if answers_request and code == UPSTREAM_UNAVAILABLE:
        return 200
    return HTTP_STATUS.get(code, 200)
