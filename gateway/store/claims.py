"""Taking over leases that have ended: what is asked of the store for each, and what its answers come to."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.store import records, scripts
from gateway.store.keys import Keys, read_lease
from gateway.store.lanes import Reply
from gateway.store.scripts import Words
from gateway.tasks.model import Task


def ask_for(keys: Keys, leases: Sequence[bytes], owner: str) -> list[Words]:
    """Return a command for each lease that gives its task to `owner`."""
    asked: list[Words] = []
    for lease in leases:
        old, scope, digest = read_lease(lease)
        args = (keys.wake, _task_of(lease), records.text_out(old), records.text_out(owner))
        asked.append(scripts.CLAIM.call(keys.of_digest(scope, digest), *args))
    return asked


def judge(leases: Sequence[bytes], replies: Sequence[Reply], name: bytes) -> tuple[list[Task], set[bytes]]:
    """Return the tasks that are ours now, and the leases that are over.

    `name` is this replica's, as leases spell it.
    """
    tasks: list[Task] = []
    over: set[bytes] = set()
    held: set[bytes] = set()
    for lease, reply in zip(leases, replies, strict=True):
        own = b"%b:%b" % (name, _task_of(lease))
        if reply == b"+":
            # It lives: its lease stays, and ours goes.
            over.add(own)
            continue
        over |= {lease, own}
        if reply is not None:
            held.add(own)
            if reply != b"=":
                tasks.append(records.read_task(read_lease(lease)[1], reply))
    # Two leases of one task may come together, where a replica has died while it took over.
    return tasks, over - held


def _task_of(lease: bytes) -> bytes:
    return lease.split(b":", 1)[1]
