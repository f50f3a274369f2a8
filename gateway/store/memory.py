"""The embedded store: fakeredis in this process, under the very same code as Redis.

It keeps nothing across a restart and shares nothing with other processes.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from fakeredis import FakeAsyncRedis, FakeServer
from redis.asyncio import ConnectionPool

# Servers that several links of one process share, for as long as one of them lives.
_named: WeakValueDictionary[str, FakeServer] = WeakValueDictionary()


def memory_pool(name: str) -> ConnectionPool:
    """Return connections to a server of this process: one of its own, or one shared under a name."""
    server = _named.get(name) if name else None
    if server is None:
        server = FakeServer()
        if name:
            _named[name] = server
    return FakeAsyncRedis(server=server, protocol=2).connection_pool
