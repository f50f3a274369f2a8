"""The embedded store: fakeredis in this process, under the very same code as Redis.

It keeps nothing across a restart and shares nothing with other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from redis.asyncio import ConnectionPool

if TYPE_CHECKING:
    from fakeredis import FakeServer

# Servers that several links of one process share, for as long as one of them lives.
_named: WeakValueDictionary[str, FakeServer] = WeakValueDictionary()


def memory_pool(name: str) -> ConnectionPool:
    """Return connections to a server of this process: one of its own, or one shared under a name."""
    # Six megabytes that a replica on Redis need not have.
    from fakeredis import FakeAsyncRedis, FakeServer  # noqa: PLC0415 see above

    server = _named.get(name) if name else None
    if server is None:
        server = FakeServer()
        if name:
            _named[name] = server
    return FakeAsyncRedis(server=server, protocol=2).connection_pool
