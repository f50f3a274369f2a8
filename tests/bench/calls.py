"""Clients of the plain scenarios: a handshake, then one tool call after the other, each answer verified."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tests.bench import payloads
from tests.bench.rounds import Round
from tests.bench.wire import Answer, Connection, Target, WrongAnswer, same_json

JSON_BODY: Final = {"Content-Type": "application/json"}
# All ids of a run have as many digits, so that an expected answer is made once and its id overwritten.
FIRST_ID: Final = 1_000_000


class Session:
    """One client: a session of its own on a connection of its own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection = Connection(target)
        self.headers: dict[str, str] = {}

    async def open(self, connection: Connection | None = None) -> None:
        """Connect and shake hands (2025-11-25 "Lifecycle"); on a given connection where there is one."""
        if connection is None:
            await self.connection.open()
            connection = self.connection
        hello = {
            "protocolVersion": payloads.PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        answer = await connection.ask(self.target.head("POST", JSON_BODY), msgspec.json.encode(body))
        if answer.status != 200 or b"protocolVersion" not in answer.body:
            raise WrongAnswer(f"initialize: {answer}")
        session = answer.headers[b"mcp-session-id"].decode()
        self.headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": payloads.PROTOCOL_VERSION}
        ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        answer = await connection.ask(self.head(), ready)
        if answer.status != 202:
            raise WrongAnswer(f"notifications/initialized: {answer}")

    def head(self, target: Target | None = None) -> bytes:
        """Return the head of a POST of this session, also to another replica of its target."""
        return (target or self.target).head("POST", JSON_BODY | self.headers)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class Caller:
    """Repeats one tool call."""

    def __init__(self, session: Session, tool: str) -> None:
        self._session = session
        self._connection = session.connection
        self._head = session.head()
        self._tool = tool
        self._number = FIRST_ID
        self._wanted = bytearray(payloads.answer(b"%d" % FIRST_ID, tool))
        self._ident_at = self._wanted.index(b"%d" % FIRST_ID)
        self._sent = 0.0
        self._round: Round | None = None

    def begin(self, current: Round) -> None:
        self._round = current
        self._connection.done = self._done
        self._connection.failed = current.fail
        self._call()

    def close(self) -> None:
        self._session.close()

    def _call(self) -> None:
        self._number += 1
        body = self._request()
        self._sent = time.perf_counter()
        self._connection.send(self._head, body)

    def _request(self) -> bytes:
        meta = b""
        if self._tool in payloads.STREAMED:
            meta = b',"_meta":{"progressToken":%d}' % self._number
        return (
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",'
            b'"params":{"name":"%b","arguments":{}%b}}' % (self._number, self._tool.encode(), meta)
        )

    def _done(self, answer: Answer) -> None:
        now = time.perf_counter()
        if self._round is None:
            return
        if answer.status != 200 or not self._is_right(answer):
            self._round.fail(WrongAnswer(f"{self._tool}: status {answer.status}, {answer.body[:400]!r}"))
        elif self._round.record(self._sent, now, answer.first):
            self._call()

    def _is_right(self, answer: Answer) -> bool:
        ident = b"%d" % self._number
        if self._tool in payloads.STREAMED:
            wanted = payloads.events(ident, ident, self._tool)
        else:
            self._wanted[self._ident_at : self._ident_at + len(ident)] = ident
            if answer.is_exactly(self._wanted):
                return True
            wanted = [bytes(self._wanted)]
        found = answer.messages()
        return len(found) == len(wanted) and all(
            same_json(one, other) for one, other in zip(found, wanted, strict=True)
        )
