"""A configured upstream whose links are shared with other replicas."""

from __future__ import annotations

from gateway.far.links import SharedLinks
from gateway.far.office import Office
from gateway.far.port import OwnLinks
from gateway.protocol.headers import Headers
from gateway.upstream.port import HttpUpstream, Link, LinkUpstream, Upstream


class SharedUpstream:
    """An `Upstream` (see the port of the upstream room): `own` with its links wherever they live."""

    def __init__(self, own: Upstream, links: OwnLinks, office: Office, *, settle: float) -> None:
        self._own = own
        self._links = SharedLinks(own.name, links, office, settle=settle)

    def __repr__(self) -> str:
        return f"<SharedUpstream {self._own!r}>"

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self._own.name

    @property
    def http(self) -> HttpUpstream | None:
        """The HTTP side."""
        return self._own.http

    @property
    def links(self) -> LinkUpstream:
        """The links, wherever they live."""
        return self._links

    @property
    def prefers_links(self) -> bool:
        """Whether sessions are links, as far as is known."""
        return self._own.prefers_links

    async def fall_back(self, tag: str, initialize: bytes, headers: Headers) -> tuple[Link, bytes] | None:
        """Try the legacy SSE transport; a link that comes of it lives here."""
        found = await self._own.fall_back(tag, initialize, headers)
        if found is not None:
            await self._links.register(found[0])
        return found

    async def check(self) -> str | None:
        """Return what is wrong with the upstream in words."""
        return await self._own.check()

    async def close(self) -> None:
        """End all connections and children."""
        await self._links.give_up()
        await self._own.close()

    async def drop_here(self, tag: str) -> None:
        """End a link that lives here: its session has ended."""
        await self._links.drop_here(tag)
