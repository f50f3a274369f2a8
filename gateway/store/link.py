"""The way to one store: its URL understood, its connections made and closed.

URL forms: `memory://` and `memory://name`, `redis://`, `rediss://`, `unix://` as redis-py has them, and
`redis+sentinel://[[user]:password@]host[:port][,host…]/service[/db]`. A URL may hold a password, so none is
ever part of an error or a `repr`.
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import RedisError

from gateway.protocol.errors import ConfigError
from gateway.store.keys import DEFAULT_PREFIX, Keys
from gateway.store.lanes import Connection, Lane
from gateway.store.memory import memory_pool

_SENTINEL_PORT: Final = 26379


class Link:
    """Connections to one store and the names of its keys; the store, the bus and the rates share one.

    `timeout` is in seconds and holds for each operation.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        prefix: str = DEFAULT_PREFIX,
        timeout: float = 2.0,
        in_process: bool = False,
    ) -> None:
        self.pool = pool
        self.in_process = in_process
        self.keys = Keys(prefix)
        self.timeout = timeout
        self.quick = Lane("quick", self.connection, timeout=timeout)
        # Large values take their own way, so that a small read never waits behind 16 MB.
        self.bulk = Lane("bulk", self.connection, timeout=timeout)
        # No crowd of other work may keep leases from being renewed.
        self.leases = Lane("leases", self.connection, timeout=timeout)

    def __repr__(self) -> str:
        return f"<Link {self.quick!r} {self.bulk!r}>"

    def connection(self) -> Connection:
        """Return a new connection, not yet connected; whoever asks closes it."""
        return cast(Connection, self.pool.make_connection())

    async def close(self) -> None:
        """Close what was opened."""
        await self.quick.close()
        await self.bulk.close()
        await self.leases.close()
        await self.pool.disconnect()
        if isinstance(self.pool, SentinelConnectionPool):
            await cast(Sentinel, self.pool.sentinel_manager).aclose()


def open_link(url: str, *, prefix: str = DEFAULT_PREFIX, timeout: float = 2.0) -> Link:
    """Return the way to the store at `url`; raise `ConfigError` where it is not one.

    Nothing is connected yet.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        raise ConfigError(
            "store.url must begin with memory://, redis://, rediss://, unix:// or redis+sentinel://"
        )
    if scheme == "memory":
        return Link(memory_pool(rest), prefix=prefix, timeout=timeout, in_process=True)
    if scheme == "redis+cluster":
        raise ConfigError(
            "store.url: redis+cluster:// is not supported yet; use redis:// or redis+sentinel://"
        )
    options = _options(timeout)
    try:
        if scheme == "redis+sentinel":
            pool = _sentinel_pool(url, options)
        elif scheme in ("redis", "rediss", "unix"):
            pool = ConnectionPool.from_url(url, **options)  # pyright: ignore[reportUnknownMemberType]  # its **kwargs
            # A URL's own options come last in redis-py; these are not the user's to choose.
            pool.connection_kwargs |= {"protocol": 2, "decode_responses": False}
        else:
            raise ConfigError(
                f"store.url: {scheme}:// is not known; use memory://, redis://, rediss://, unix:// or redis+sentinel://"
            )
        # Made and dropped unconnected: an option that redis-py does not know fails here.
        pool.make_connection()
    except (ValueError, TypeError, RedisError):
        raise ConfigError(
            f"store.url is not a valid {scheme}:// URL, or has an option that is not known"
        ) from None
    return Link(pool, prefix=prefix, timeout=timeout)


def _options(timeout: float) -> dict[str, Any]:
    return {
        # RESP2 is the cheaper one to parse, and enough.
        "protocol": 2,
        "driver_info": None,
        "socket_connect_timeout": timeout,
        # Lanes time whole batches; a limit on each read would cost a timer for each.
        "socket_timeout": None,
        "retry": Retry(ExponentialWithJitterBackoff(cap=0.2, base=0.02), 3),
    }


def _sentinel_pool(url: str, options: dict[str, Any]) -> ConnectionPool:
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, db = parts.path.strip("/").partition("/")
    if not places or not service:
        raise ValueError(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    sentinel_options: dict[str, Any] = {
        "socket_connect_timeout": options["socket_connect_timeout"],
        "socket_timeout": options["socket_connect_timeout"],
        "username": query.get("sentinel_username"),
        "password": query.get("sentinel_password"),
    }
    master_options = options | {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "db": int(db or 0),
    }
    hosts = [_host(place) for place in places.split(",")]
    sentinel = Sentinel(hosts, 0, sentinel_options, **master_options)
    return SentinelConnectionPool(unquote(service), sentinel, **master_options)


def _host(place: str) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(place)
    return parts.hostname, parts.port or _SENTINEL_PORT
