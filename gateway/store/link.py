"""The way to one store: its URL understood, its connections made and closed.

URL forms: `memory://` and `memory://name`, `redis://`, `rediss://`, `unix://` as redis-py has them,
`redis+sentinel://[[user]:password@]host[:port][,host…]/service[/db]` and
`redis+cluster://[[user]:password@]host[:port][,host…]`; the last two with TLS as `rediss+…`. A URL may hold
a password, so none is ever part of an error or a `repr`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio import Connection as TcpConnection
from redis.asyncio import ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.protocol.errors import ConfigError
from gateway.store.cluster import Cluster, ClusterLane, Place
from gateway.store.health import Health
from gateway.store.keys import DEFAULT_PREFIX, Keys
from gateway.store.lanes import Connection, Lane, Reply
from gateway.store.memory import memory_pool
from gateway.store.scripts import Words

SCHEMES: Final = (
    "memory",
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "unix",
)
_SENTINEL_PORT: Final = 26379
_REDIS_PORT: Final = 6379
_TLS_OPTIONS: Final = frozenset(
    {
        "ssl_cert_reqs",
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_password",
        "ssl_check_hostname",
    }
)


class Way(Protocol):
    """A `Lane`, or what does the same over several nodes."""

    async def ask(self, *commands: Words) -> list[Reply]:
        """Send commands and return their answers; raise `StoreAway`.

        Where the store is a cluster, those of one slot keep their order.
        """
        ...

    async def ask_in_order(self, *commands: Words) -> list[Reply]:
        """Do the same; no command is carried out before those in front of it."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Link:
    """Connections to one store and the names of its keys; the store, the bus and the rates share one.

    `timeout` is in seconds and holds for each operation. `on_connect` are called whenever a connection has
    been made, `on_lost` whenever one was lost or hangs.
    """

    quick: Way
    bulk: Way
    leases: Way

    def __init__(self, *, prefix: str, timeout: float, in_process: bool = False) -> None:
        self.in_process = in_process
        self.keys = Keys(prefix)
        self.timeout = timeout
        self.on_connect: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.quick!r} {self.bulk!r}>"

    def connection(self) -> Connection:
        """Return a new connection for pub/sub, not yet connected; whoever asks closes it."""
        raise NotImplementedError

    def serves(self, connection: Connection) -> bool:
        """Tell whether a connection still leads to a part of the store, as far as is known."""
        del connection
        return True

    async def ping_all(self) -> None:
        """Return when every server answers that a question about one key does not reach."""

    async def publish(self, channel: bytes, message: bytes) -> bool:
        """Publish a message; tell whether anybody can have heard it; raise `StoreAway`."""
        (heard,) = await self.quick.ask((b"PUBLISH", channel, message))
        return bool(heard)

    async def close(self) -> None:
        """Close what was opened."""
        await self.quick.close()
        await self.bulk.close()
        await self.leases.close()

    def connected(self) -> None:
        """Tell who wants to know that a connection has been made."""
        for hear in self.on_connect:
            hear()

    def lost(self) -> None:
        """Tell who wants to know that a connection was lost or hangs."""
        for hear in self.on_lost:
            hear()


class PoolLink(Link):
    """The way to one server, to the embedded one, or to whichever Sentinel names the primary."""

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        prefix: str = DEFAULT_PREFIX,
        timeout: float = 2.0,
        in_process: bool = False,
    ) -> None:
        super().__init__(prefix=prefix, timeout=timeout, in_process=in_process)
        self.pool = pool
        health = Health(on_connect=self.connected, on_lost=self.lost)
        self.quick = self._lane("quick", health)
        # Large values take their own way, so that a small read never waits behind 16 MB.
        self.bulk = self._lane("bulk", health)
        # No crowd of other work may keep leases from being renewed.
        self.leases = self._lane("leases", health)

    def connection(self) -> Connection:
        """Return a new connection, not yet connected; whoever asks closes it."""
        return cast(Connection, self.pool.make_connection())

    async def close(self) -> None:
        """Close what was opened."""
        await super().close()
        await self.pool.disconnect()
        if isinstance(self.pool, SentinelConnectionPool):
            await cast(Sentinel, self.pool.sentinel_manager).aclose()

    def _lane(self, name: str, health: Health) -> Lane:
        return Lane(name, self.connection, timeout=self.timeout, health=health)


class ClusterLink(Link):
    """The way to a Redis Cluster: lanes to each node that has slots."""

    def __init__(
        self,
        seeds: list[Place],
        make: Callable[[Place], Connection],
        *,
        prefix: str = DEFAULT_PREFIX,
        timeout: float = 2.0,
    ) -> None:
        super().__init__(prefix=prefix, timeout=timeout)
        self._make = make
        self._cluster = Cluster(seeds, make, timeout=timeout, on_connect=self.connected, on_lost=self.lost)
        self._quick = self.quick = ClusterLane(self._cluster, "quick")
        self.bulk = ClusterLane(self._cluster, "bulk")
        self.leases = ClusterLane(self._cluster, "leases")

    def connection(self) -> Connection:
        """Return a new connection to some node, which hears what is published on any."""
        return self._make(self._cluster.some_place())

    def serves(self, connection: Connection) -> bool:
        """Tell whether a connection leads to a node that has slots."""
        node = cast(TcpConnection, connection)
        return self._cluster.is_primary((node.host, int(node.port)))

    async def publish(self, channel: bytes, message: bytes) -> bool:
        """Publish a message; a node counts only its own listeners, so that others may have to be asked."""
        if await super().publish(channel, message):
            return True
        counts = await self._quick.ask_everywhere((b"PUBSUB", b"NUMSUB", channel))
        return any(count for _, count in counts)

    async def ping_all(self) -> None:
        """Return when every node answers that has slots; raise `StoreAway`."""
        await self._quick.ask_everywhere((b"PING",))

    async def close(self) -> None:
        """Close what was opened."""
        await super().close()
        await self._cluster.close()


def open_link(url: str, *, prefix: str = DEFAULT_PREFIX, timeout: float = 2.0) -> Link:
    """Return the way to the store at `url`; raise `ConfigError` where it is not one.

    Nothing is connected yet.
    """
    scheme, found, rest = url.partition("://")
    known = ", ".join(f"{each}://" for each in SCHEMES)
    if not found:
        raise ConfigError(f"store.url must begin with one of {known}")
    if scheme not in SCHEMES:
        raise ConfigError(f"store.url: {scheme}:// is not known; use one of {known}")
    if scheme == "memory":
        return PoolLink(memory_pool(rest), prefix=prefix, timeout=timeout, in_process=True)
    options = _options(timeout)
    try:
        if scheme.endswith("+cluster"):
            return _cluster_link(url, options, prefix, timeout)
        if scheme.endswith("+sentinel"):
            pool = _sentinel_pool(url, options)
        else:
            pool = ConnectionPool.from_url(url, **options)  # pyright: ignore[reportUnknownMemberType]  # its **kwargs
            # A URL's own options come last in redis-py; these are not the user's to choose.
            pool.connection_kwargs |= {"protocol": 2, "decode_responses": False}
        # Made and dropped unconnected: an option that redis-py does not know fails here.
        pool.make_connection()
    except (ValueError, TypeError, RedisError):
        raise ConfigError(
            f"store.url is not a valid {scheme}:// URL, or has an option that is not known"
        ) from None
    return PoolLink(pool, prefix=prefix, timeout=timeout)


def _options(timeout: float) -> dict[str, Any]:
    return {
        # RESP2 is the cheaper one to parse, and enough.
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": timeout,
        # Lanes time whole batches; a limit on each read would cost a timer for each.
        "socket_timeout": None,
        # Lanes and the bus have a backoff of their own.
        "retry": Retry(NoBackoff(), 0),
    }


def _cluster_link(url: str, options: dict[str, Any], prefix: str, timeout: float) -> Link:
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    if not places or parts.path.strip("/") not in ("", "0"):
        raise ValueError(url)
    kind, tls = _tls(parts.scheme, parts.query)
    node_options = options | _login(login) | tls

    def make(place: Place) -> Connection:
        return cast(Connection, kind(host=place[0], port=place[1], **node_options))

    seeds = [_host(place, _REDIS_PORT) for place in places.split(",")]
    make(seeds[0])
    return ClusterLink(seeds, make, prefix=prefix, timeout=timeout)


def _login(login: str) -> dict[str, Any]:
    user, _, password = login.partition(":")
    return {"username": unquote(user) or None, "password": unquote(password) or None}


def _tls(scheme: str, query: str) -> tuple[type[TcpConnection], dict[str, Any]]:
    """Return the kind of connection and the options of its TLS; raise `ValueError` for unknown ones."""
    given: dict[str, Any] = {name: values[-1] for name, values in parse_qs(query).items()}
    if not scheme.startswith("rediss"):
        if given:
            raise ValueError(query)
        return TcpConnection, {}
    if not given.keys() <= _TLS_OPTIONS:
        raise ValueError(query)
    if "ssl_check_hostname" in given:
        given["ssl_check_hostname"] = given["ssl_check_hostname"].lower() in ("true", "1", "yes")
    return SSLConnection, given


def _sentinel_pool(url: str, options: dict[str, Any]) -> ConnectionPool:
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not places or not service:
        raise ValueError(url)
    given = parse_qsl(parts.query)
    query = {name: text for name, text in given if name.startswith("sentinel_")}
    if not query.keys() <= {"sentinel_username", "sentinel_password"}:
        raise ValueError(url)
    secure = parts.scheme == "rediss+sentinel"
    _, tls = _tls(parts.scheme, urlencode([pair for pair in given if pair[0] not in query]))
    sentinel_options: dict[str, Any] = {
        "socket_connect_timeout": options["socket_connect_timeout"],
        "socket_timeout": options["socket_connect_timeout"],
        "username": query.get("sentinel_username"),
        "password": query.get("sentinel_password"),
        **({"ssl": True, **tls} if secure else {}),
    }
    primary_options = options | _login(login) | {"db": int(db or 0)} | tls
    hosts = [_host(place, _SENTINEL_PORT) for place in places.split(",")]
    sentinel = Sentinel(hosts, 0, sentinel_options, **primary_options)
    return SentinelConnectionPool(unquote(service), sentinel, ssl=secure, **primary_options)


def _host(place: str, port: int) -> Place:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(place)
    return parts.hostname, parts.port or port
