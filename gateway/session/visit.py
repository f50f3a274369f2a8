"""One request on its way through the session room, with all that is known about who sent it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.crossing.port import Crossing
from gateway.dialects.choose import Dialects
from gateway.dialects.port import Offer
from gateway.protocol.envelope import Envelope, members, text_of
from gateway.protocol.headers import SESSION, Headers, to_upstream
from gateway.session.exchange import Inbound
from gateway.session.principal import ScopeMode
from gateway.session.token import Session
from gateway.tasks.model import Scope
from gateway.tasks.policy import Policy, PolicyBook
from gateway.upstream.port import Channel, Link, LinkUpstream, Upstream


class Served(msgspec.Struct, frozen=True):
    """An upstream as the session room serves it.

    `taskable` are the methods that some rule lets be tasks; `plain_may_be_refused` says that some rule
    refuses calls without task metadata. `dialects` are the wire forms of tasks as this upstream's
    clients get them, `crossing` leads to it from the other era. A plain call waits `answer_within`
    milliseconds for the client to come back with input. `called` hears of each plain exchange: method,
    outcome and the seconds until its head was in.
    """

    name: str
    upstream: Upstream
    policies: PolicyBook
    scope_mode: ScopeMode
    taskable: tuple[str, ...]
    plain_may_be_refused: bool
    dialects: Dialects
    crossing: Crossing
    answer_within: int
    called: Callable[[str, str, float], None]


class Visit(msgspec.Struct):
    """One request: where it goes, who asks, what it is.

    `known` says that the scope is that of a known asker, who can be told apart from all others.
    `pipe` is the link of a client that is on a pipe itself: what is plain goes there as it came, and
    what comes back is not waited for.
    """

    served: Served
    inbound: Inbound
    session: Session | None
    scope: Scope | None
    envelope: Envelope | None = None
    pipe: Link | None = None
    principal: str | None = None
    known: bool = False
    _tool: tuple[Envelope, str | None] | None = None

    @property
    def version(self) -> str:
        """The protocol version that the session has agreed on, empty without a session."""
        return self.session.version if self.session is not None else ""

    @property
    def tool(self) -> str | None:
        """The name of the tool that the request calls, `None` where it calls none."""
        request = self.request
        if request.method != "tools/call":
            return None
        if self._tool is None or self._tool[0] is not request:
            self._tool = (request, text_of(members(request.params).get("name")))
        return self._tool[1]

    @property
    def policy(self) -> Policy:
        """The rule that holds for the request."""
        method = self.request.method
        name = self.tool if method == "tools/call" else None
        return self.served.policies.find(method, name)

    @property
    def offer(self) -> Offer:
        """What is offered to this client."""
        return Offer(self.served.taskable, self.known)

    @property
    def request(self) -> Envelope:
        """The message of a POST."""
        if self.envelope is None:
            raise ValueError("this visit carries no message")
        return self.envelope

    @property
    def tag(self) -> str:
        """The session's name in logs, empty without one."""
        return self.session.tag if self.session is not None else ""

    def upstream_headers(self) -> Headers:
        """Return the client's headers for the upstream, with the upstream's own session id."""
        headers = to_upstream(self.inbound.headers)
        if self.session is not None and self.session.upstream_id is not None:
            headers.append((SESSION, self.session.upstream_id))
        return headers


def is_known(served: Served, principal: str | None) -> bool:
    """Tell whether the asker of a request to an upstream can be told apart from all others."""
    return principal is not None or served.scope_mode == "shared"


async def find_link(visit: Visit) -> Link | None:
    """Return the link of a visit's session, revived where it must be; `None` where it cannot be."""
    if visit.pipe is not None:
        return visit.pipe
    session = visit.session
    links = None if session is None else links_of(visit.served, session)
    if session is None or links is None:
        return None
    return await links.find(session.tag, session.initialize, to_upstream(visit.inbound.headers))


def links_of(served: Served, session: Session) -> LinkUpstream | None:
    """Return where the link of a session is kept."""
    return served.crossing.links if session.crossed else served.upstream.links


async def find_channel(visit: Visit) -> Channel | None:
    """Return the channel to the visit's upstream session, `None` where the session is lost."""
    session, http = visit.session, visit.served.upstream.http
    if session is not None and session.link:
        return await find_link(visit)
    if http is None:
        return None
    upstream_id = session.upstream_id if session is not None else None
    if upstream_id is not None and http.is_gone(upstream_id):
        return None
    return http.channel(upstream_id, to_upstream(visit.inbound.headers))
