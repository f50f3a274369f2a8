"""The store on Redis, Valkey or the embedded server: a method is one script, mostly one round trip."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, cast

from gateway.aio.clock import Clock, SystemClock
from gateway.protocol.codes import INVALID_PARAMS
from gateway.protocol.errors import IllegalMove, Refusal
from gateway.store import claims, records, scripts
from gateway.store.keys import DEFAULT_PREFIX, lease_member, request_field
from gateway.store.lanes import Reply
from gateway.store.link import Link, open_link
from gateway.store.port import Asker, Bounds, Claim, Exists, Full, Left
from gateway.store.scripts import Script, Words
from gateway.store.secret import SharedSecret
from gateway.store.turns import RedisTurns
from gateway.tasks.model import LogEntry, NewTask, Outcome, Pending, Scope, Status, Task, TaskKey

Observe = Callable[[str, float, bool], None]
"""Hears of each operation: its name, its seconds, whether the store answered."""

_LARGE: Final = 32_768
_SWEEPS: Final = 16
_LEASES: Final = ("renew", "claim_lost", "hold")
_OFFSET: Final = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
_PLACE: Final = re.compile(r"[0-9]{1,16}")


class RedisStore:
    """The `Store` of `gateway.store.port` over a link; `log_length` bounds the messages of a task's log."""

    def __init__(
        self,
        link: Link,
        *,
        log_length: int = 1_000,
        clock: Clock | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.link = link
        self._keys = link.keys
        self._log_length = b"%d" % log_length
        self._clock = SystemClock() if clock is None else clock
        self._observe = observe
        self._secret = SharedSecret(link, self._ask)
        self.turns = RedisTurns(link.keys, self._ask)

    def __repr__(self) -> str:
        return f"<RedisStore {self.link!r}>"

    async def create(self, new: NewTask, owner: str, lease_ms: int, bounds: Bounds) -> Task | Exists | Full:
        """Store a new task with its request-id mapping and its lease in one round trip.

        The lease goes first: a crash between the two leaves a lease without a task, which `claim_lost`
        sweeps, never a task without a lease. Leases carry the replica's name, so what is taken back
        here can only be this replica's own. It is taken back only where this very call wrote it (`NX`)
        and no task came of it. A second creation of that id by this replica in the same moment may have
        relied on it; that one sees that its own lease was not new, and writes it again, behind the
        taking back since both go through one lane in order. On a cluster the lease is mostly on another
        node, which costs a second round trip.
        """
        key = new.key
        lease = lease_member(key, owner)
        bulk = len(new.request) > _LARGE
        added, reply = await self._ask(
            "create",
            self._lease(lease_ms, b"NX", lease),
            scripts.CREATE.call(
                self._keys.task(key),
                self._keys.wake,
                self._keys.member(key),
                records.text_out(owner),
                records.pack_made(new),
                b"" if new.keep_alive is None else b"%d" % new.keep_alive,
                b"%d" % new.timeout,
                new.first_status.encode(),
                request_field(new.session, new.request_id),
                records.text_out(key.task_id),
                b"%d" % bounds.active,
                b"%d" % bounds.stored,
                new.kept_from.encode(),
                new.course,
                new.request,
                b"1" if new.request_kept else b"0",
            ),
            bulk=bulk,
            ordered=True,
        )
        refused = _refused(reply, bounds)
        if refused is None:
            if not added:
                await self._ask("create", self._lease(lease_ms, b"", lease), bulk=bulk)
            return records.read_task(key.scope, reply)
        if added:
            await self._ask("create", self._unlease(lease), bulk=bulk)
        return refused

    async def get(self, key: TaskKey) -> Task | None:
        """Return the record in one read; `None` where there is none."""
        (reply,) = await self._ask("get", scripts.READ.call((self._keys.record(key),)))
        return _task(key.scope, reply)

    async def outcome(self, key: TaskKey) -> tuple[Task, Outcome | None] | None:
        """Return the record with its outcome, in one read; the outcome is `None` before the end."""
        words = scripts.OUTCOME.call((self._keys.record(key), self._keys.outcome(key)))
        ((record, stored),) = await self._ask("outcome", words, bulk=True)
        task = _task(key.scope, record)
        if task is None or (task.ended and stored is None):
            return None
        return task, None if stored is None else records.read_outcome(stored)

    async def find_request(self, scope: Scope, session: str, request_id: bytes) -> TaskKey | None:
        """Return the task that was made by a session's request of that id."""
        _, expiries, _, requests = self._keys.scope(scope)
        words = scripts.FIND.call((expiries, requests), request_field(session, request_id))
        (reply,) = await self._ask("find_request", words)
        return None if reply is None else TaskKey(scope, records.text_in(reply))

    async def start(self, key: TaskKey, claim: Claim) -> Task | None:
        """Move submitted → working; a task past that only gets its time of start."""
        (reply,) = await self._ask("start", self._task(scripts.START, key, *_claim(claim)))
        return _task(key.scope, reply)

    async def ask(self, key: TaskKey, claim: Claim, pending: Pending, place: str = "") -> Task | None:
        """Add a pending server request and move to input_required; `None` as in `start`."""
        relay_id, stored = records.text_out(pending.relay_id), records.pack_pending(pending)
        heard = records.text_out(place)
        words = self._task(scripts.ASK, key, *_claim(claim), relay_id, stored, heard)
        (reply,) = await self._ask("ask", words)
        return _moved(key.scope, reply, "input_required")

    async def take_pending(
        self, key: TaskKey, relay_id: str, answer: bytes = b""
    ) -> tuple[Task, Pending] | None:
        """Take a pending server request out, once; its answer is kept until it is delivered."""
        words = self._task(scripts.TAKE_PENDING, key, records.text_out(relay_id), answer)
        (reply,) = await self._ask("take_pending", words)
        if reply is None:
            return None
        record, stored = reply
        return records.read_task(key.scope, record), records.read_pending(stored)[1]

    async def drop_pending(self, key: TaskKey, claim: Claim, upstream_id: bytes) -> Task | None:
        """Drop the pending request that the upstream itself withdrew, if it still waits."""
        words = self._task(scripts.DROP_PENDING, key, *_claim(claim), upstream_id)
        (reply,) = await self._ask("drop_pending", words)
        return _task(key.scope, reply)

    async def note(self, key: TaskKey, claim: Claim, status_message: str) -> bool:
        """Set the status message; false where the task is gone, ended or no longer ours."""
        words = self._task(scripts.NOTE, key, *_claim(claim), records.text_out(status_message))
        (reply,) = await self._ask("note", words)
        return reply is not None

    async def append(self, key: TaskKey, claim: Claim, message: bytes, place: str = "") -> str | None:
        """Append a message to the task's capped log and return its offset; `None` as in `start`."""
        heard = records.text_out(place)
        words = self._task(scripts.APPEND, key, *_claim(claim), message, self._log_length, heard)
        (reply,) = await self._ask("append", words, bulk=len(message) > _LARGE)
        return None if reply is None else cast(bytes, reply).decode()

    async def mark(self, key: TaskKey, claim: Claim, place: str, course: bytes = b"") -> bool:
        """Note how far the upstream's stream was heard, and a new course where one is given."""
        words = self._task(scripts.MARK, key, *_claim(claim), records.text_out(place), course)
        (reply,) = await self._ask("mark", words)
        return reply is not None

    async def delivered(self, key: TaskKey, claim: Claim, relay_id: str) -> None:
        """Let go of an answer that has reached the upstream."""
        words = self._task(scripts.DELIVERED, key, *_claim(claim), records.text_out(relay_id))
        await self._ask("delivered", words)

    async def bespeak(self, key: TaskKey, relay_id: str, asker: Asker, waiter: str = "") -> int | None:
        """Let a replica alone ask a pending request; return for how long (ms) it may not yet."""
        texts = (records.text_out(text) for text in (relay_id, asker.replica, waiter))
        words = self._task(scripts.BESPEAK, key, *texts, b"%d" % asker.lease_ms)
        (reply,) = await self._ask("bespeak", words)
        return cast("int | None", reply)

    async def left(self, key: TaskKey, claim: Claim) -> Left | None:
        """Return what the replica left that ran the task before; `None` as in `start`."""
        (reply,) = await self._ask("left", self._task(scripts.LEFT, key, *_claim(claim)), bulk=True)
        return None if reply is None else records.read_left(reply)

    async def hold(self, key: TaskKey, claim: Claim, lease_ms: int) -> Task | None:
        """Hold on to a task whose lease may have ended; `None` where it is no longer ours."""
        (reply,) = await self._ask("hold", self._task(scripts.HOLD, key, *_claim(claim), b"%d" % lease_ms))
        return _task(key.scope, reply)

    async def finish(self, key: TaskKey, claim: Claim, outcome: Outcome) -> Task | None:
        """Move to a terminal status with the outcome, in one round trip with the end of the lease.

        Raise `IllegalMove` where the outcome's status is not terminal.
        """
        stored = records.pack_outcome(outcome)
        reply, _ = await self._ask(
            "finish",
            self._task(
                scripts.FINISH,
                key,
                *_claim(claim),
                outcome.status.encode(),
                stored,
                records.text_out(outcome.error or ""),
                b"1" if outcome.is_error else b"0",
            ),
            # Ours or not, the lease is over: who is not the owner any more has no claim to it.
            self._unlease(lease_member(key, claim.owner)),
            bulk=len(stored) > _LARGE,
            ordered=True,
        )
        return _moved(key.scope, reply, outcome.status)

    async def cancel(self, key: TaskKey, words: str) -> Task | None:
        """Move to cancelled, whoever runs it; raise `IllegalMove` when it has ended; `None` if gone."""
        stored = records.pack_outcome(Outcome(status="cancelled", error=words))
        command = self._task(scripts.CANCEL, key, stored, records.text_out(words))
        (reply,) = await self._ask("cancel", command)
        task = _moved(key.scope, reply, "cancelled")
        if task is not None:
            await self._ask("cancel", self._unlease(lease_member(key, task.owner)))
        return task

    async def remove(self, key: TaskKey) -> Task | None:
        """Delete everything about a task, in any state; return what it was, `None` if gone."""
        (reply,) = await self._ask("remove", self._task(scripts.REMOVE, key))
        task = _task(key.scope, reply)
        if task is not None and not task.ended:
            await self._ask("remove", self._unlease(lease_member(key, task.owner)))
        return task

    async def page(self, scope: Scope, after: str | None, limit: int) -> tuple[list[Task], str | None]:
        """Return tasks in the order of creation and the place to go on from, `None` at the end.

        Raise `Refusal` (-32602) where `after` is no place. Two round trips: the index, then the records.
        """
        if after is not None and _PLACE.fullmatch(after) is None:
            raise Refusal(INVALID_PARAMS, "the cursor is not one of this list")
        place = b"-inf" if after is None else after.encode()
        words = scripts.PAGE.call(self._keys.scope(scope), place, b"%d" % limit)
        (found,) = await self._ask("page", words)
        digests = cast(list[bytes], found[: 2 * limit : 2])
        if not digests:
            return [], None
        names = [self._keys.of_digest(scope, digest) for digest in digests]
        replies = await self._ask("page", *(scripts.READ.call(keys[4:5]) for keys in names))
        # An index entry without its record is what an eviction leaves; it must not count against the scope.
        stale = [
            scripts.REMOVE.call(keys, self._keys.wake, digest)
            for keys, digest, reply in zip(names, digests, replies, strict=True)
            if reply is None
        ]
        if stale:
            await self._ask("page", *stale)
        tasks = [records.read_task(scope, reply) for reply in replies if reply is not None]
        more = len(found) > 2 * limit
        return tasks, cast(bytes, found[2 * limit - 1]).decode() if more else None

    async def read_log(self, key: TaskKey, after: str | None, limit: int) -> list[LogEntry]:
        """Return log entries after an offset, oldest first; from the start where it is not an offset."""
        known = after is not None and _OFFSET.fullmatch(after) is not None
        first = b"(" + after.encode() if after is not None and known else b"-"
        words = scripts.READ_LOG.call((self._keys.log(key),), first, b"%d" % limit)
        (reply,) = await self._ask("read_log", words, bulk=True)
        return records.read_entries(reply)

    async def renew(self, keys: Sequence[TaskKey], owner: str, lease_ms: int) -> None:
        """Renew the leases of running tasks, in one round trip for all; for 0 ms they end now."""
        if keys:
            leases = [lease_member(key, owner) for key in keys]
            await self._ask("renew", self._lease(lease_ms, b"", *leases))

    async def claim_lost(self, owner: str, lease_ms: int, limit: int) -> list[Task]:
        """Take over tasks whose lease has ended: owner and epoch change, atomically for each.

        A lease counts as ended at the moment it is taken, in one script; a renewal before that saves it.
        Whatever dies on the way, the task keeps a lease: the old one is only put off until the new one
        stands and the record has changed hands.
        """
        tasks: list[Task] = []
        name = lease_member(TaskKey(Scope("", ""), ""), owner).split(b":", 1)[0]
        for _ in range(_SWEEPS):
            wanted = limit - len(tasks)
            words = scripts.EXPIRED.call((self._keys.leases,), b"%d" % lease_ms, b"%d" % wanted, name)
            (leases,) = await self._ask("claim_lost", words)
            if leases:
                tasks += await self._claim(cast(list[bytes], leases), owner, name)
            if len(leases) < wanted or len(tasks) >= limit:
                break
        return tasks

    async def sweep(self) -> None:
        """Put the shared secret back where the store has lost it.

        The embedded server also drops what has expired: it does so only when it counts its keys.
        """
        await self._secret.keep()
        if self.link.in_process:
            await self._ask("sweep", (b"DBSIZE",))

    async def end_session(self, session: str, ttl_ms: int) -> None:
        """Remember for a while that a session has been ended by its client."""
        if ttl_ms > 0:
            key = self._keys.ended_session(session)
            await self._ask("end_session", (b"SET", key, b"1", b"PX", b"%d" % ttl_ms))

    async def session_ended(self, session: str) -> bool:
        """Tell whether a session has been ended by its client."""
        (reply,) = await self._ask("session_ended", (b"EXISTS", self._keys.ended_session(session)))
        return reply == 1

    async def shared_secret(self, make: Callable[[], bytes]) -> bytes:
        """Return the secret that all replicas share; the first replica's `make` decides it."""
        return await self._secret.get(make)

    async def ping(self) -> None:
        """Return when every server of the store answers, and writes are not refused.

        A full one, or one that became a replica, refuses even a write that changes nothing.
        """
        await self._ask("ping", (b"SET", self._keys.probe, b"", b"XX"))
        await self.link.ping_all()

    async def close(self) -> None:
        """Let go of all connections."""
        await self._secret.close()
        await self.link.close()

    async def _claim(self, leases: list[bytes], owner: str, name: bytes) -> list[Task]:
        replies = await self._ask("claim_lost", *claims.ask_for(self._keys, leases, owner))
        tasks, over = claims.judge(leases, replies, name)
        if over:
            await self._ask("claim_lost", self._unlease(*over))
        return tasks

    def _task(self, script: Script, key: TaskKey, *args: bytes) -> Words:
        return script.call(self._keys.task(key), self._keys.wake, self._keys.member(key), *args)

    def _lease(self, lease_ms: int, how: bytes, *leases: bytes) -> Words:
        return scripts.LEASE.call((self._keys.leases,), b"%d" % lease_ms, how, *leases)

    def _unlease(self, *leases: bytes) -> Words:
        return (b"ZREM", self._keys.leases, *leases)

    async def _ask(
        self, operation: str, *commands: Words, bulk: bool = False, ordered: bool = False
    ) -> list[Reply]:
        lane = self.link.bulk if bulk else self.link.leases if operation in _LEASES else self.link.quick
        ask = lane.ask_in_order if ordered else lane.ask
        if self._observe is None:
            return await ask(*commands)
        began = self._clock.monotonic()
        answered = False
        try:
            replies = await ask(*commands)
            answered = True
        finally:
            self._observe(operation, self._clock.monotonic() - began, answered)
        return replies


def open_store(
    url: str,
    *,
    prefix: str = DEFAULT_PREFIX,
    timeout: float = 2.0,
    log_length: int = 1_000,
    clock: Clock | None = None,
    observe: Observe | None = None,
) -> RedisStore:
    """Return the store at `url` (see `gateway.store.link`), not yet connected; raise `ConfigError`."""
    link = open_link(url, prefix=prefix, timeout=timeout)
    return RedisStore(link, log_length=log_length, clock=clock, observe=observe)


def _claim(claim: Claim) -> tuple[bytes, bytes]:
    return records.text_out(claim.owner), b"%d" % claim.epoch


def _task(scope: Scope, reply: bytes | None) -> Task | None:
    return None if reply is None else records.read_task(scope, reply)


def _moved(scope: Scope, reply: bytes | None, target: Status) -> Task | None:
    if reply is not None and reply.startswith(b"!"):
        raise IllegalMove(reply[1:].decode(), target)
    return _task(scope, reply)


def _refused(reply: bytes, bounds: Bounds) -> Exists | Full | None:
    if reply == b"=":
        return Exists()
    if reply == b"<active":
        return Full("active", bounds.active)
    return Full("stored", bounds.stored) if reply == b"<stored" else None
