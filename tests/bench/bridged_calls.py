"""Clients of the bridged scenarios: plain calls of the stateless era, an upstream of the other."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tests.bench.calls import JSON_BODY, Caller, Session
from tests.bench.wire import Answer, Connection, Target, WrongAnswer

C_VERSION: Final = "2026-07-28"
# What a client says that its user can be asked, as clients with a person in front of them do.
ASKABLE: Final[dict[str, Any]] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


def meta_of(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a request of the stateless era (2026-07-28 basic, "_meta")."""
    return {
        "io.modelcontextprotocol/protocolVersion": C_VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


def stateless_head(target: Target, method: str, name: str | None = None) -> bytes:
    """Return the head of a POST with the headers that mirror its body (2026-07-28 transports)."""
    headers = JSON_BODY | {"MCP-Protocol-Version": C_VERSION, "Mcp-Method": method}
    return target.head("POST", headers if name is None else headers | {"Mcp-Name": name})


class StatelessSession(Session):
    """One client that has no session: a connection, and what it says of itself on each request."""

    def __init__(self, target: Target, tool: str, capabilities: dict[str, Any]) -> None:
        super().__init__(target)
        self._tool = tool
        self.meta = meta_of(capabilities)

    async def open(self, connection: Connection | None = None) -> None:
        """Connect and discover."""
        await self.connection.open()
        body = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": self.meta}}
        head = stateless_head(self.target, "server/discover")
        answer = await self.connection.ask(head, msgspec.json.encode(body))
        if answer.status != 200 or b"supportedVersions" not in answer.body:
            raise WrongAnswer(f"server/discover: {answer}")

    def head(self, target: Target | None = None) -> bytes:
        """Return the head of a call."""
        return stateless_head(target or self.target, "tools/call", self._tool)


class BridgedCaller(Caller):
    """Repeats one tool call.

    The first answer is read and compared with what the upstream sent; it then stands for the others,
    since what the gateway adds may be spelt in more than one way.
    """

    def __init__(self, session: StatelessSession, tool: str) -> None:
        super().__init__(session, tool)
        self._upstream = msgspec.json.decode(bytes(self._wanted))["result"]
        self._wanted = bytearray()
        self._body = b'"params":%b}' % msgspec.json.encode(
            {"name": tool, "arguments": {}, "_meta": session.meta}
        )

    def _request(self) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call",%b' % (self._number, self._body)

    def _is_right(self, answer: Answer) -> bool:
        ident = b"%d" % self._number
        if not self._wanted:
            message = msgspec.json.decode(answer.messages()[-1])
            result = message["result"]
            ours = {name: part for name, part in result.items() if name not in ("resultType", "_meta")}
            if (
                message["id"] != self._number
                or result["resultType"] != "complete"
                or ours != self._upstream
            ):
                return False
            self._wanted = bytearray(answer.body)
            self._ident_at = self._wanted.index(ident)
        self._wanted[self._ident_at : self._ident_at + len(ident)] = ident
        return answer.is_exactly(self._wanted)
