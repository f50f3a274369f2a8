"""A signed POST to a URL of the operator's when a task has ended.

Headers and signature follow the Standard Webhooks specification 1.0.0, so that its receiver libraries
verify them. Every event is a delivery of its own with its own retries: one that the receiver cannot
digest holds up no other. Deliveries may arrive out of order and more than once; `id` tells them apart.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.hooks.port import Plugin, TaskEnded
from gateway.protocol.errors import PluginError

_log = logging.getLogger("gateway.plugins.webhook")

# Answers other than these and 5xx will be the same next time (RFC 9110 section 15.5, RFC 8470, RFC 6585).
TRY_AGAIN: Final = frozenset({408, 425, 429})
LONGEST_RETRY_AFTER: Final = 3600.0
AT_ONCE: Final = 8
ERROR_CHARS: Final = 1000

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS: Final = ("content-type", "content-length", "transfer-encoding", "host", "connection")


class Backoff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pause after the first failed attempt, doubled after each further one, and its limit."""

    first: str | float = "1s"
    max: str | float = "5m"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator may write; durations like `10s`, or seconds.

    Exactly one of the three secrets is needed: `whsec_` and base64 of 24 to 64 bytes; several, apart
    by spaces, all sign, so that a secret can be changed without a gap.
    """

    url: str
    secret: str | None = None
    secret_env: str | None = None
    secret_file: str | None = None
    allow_http: bool = False
    headers: dict[str, str] = {}
    statuses: tuple[Literal["completed", "failed", "cancelled", "unknown"], ...] = ()
    timeout: str | float = "10s"
    queue: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8
    backoff: Backoff = Backoff()


class TimeAndChance(NamedTuple):
    """What a test replaces: monotonic seconds, nanoseconds since 1970, waiting, and numbers below 1."""

    monotonic: Callable[[], float] = time.monotonic
    time_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # noqa: TID251 - no Clock for plugins
    random: Callable[[], float] = random.SystemRandom().random


MACHINE: Final = TimeAndChance()


class Signer:
    """Signs with every secret it was given (Standard Webhooks 1.0.0, "Signature scheme")."""

    def __init__(self, secrets: str) -> None:
        self._keys = [_key(secret) for secret in secrets.split() or [""]]

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the value of `webhook-signature`; `timestamp` is in seconds since the epoch."""
        signed = f"{message_id}.{timestamp}.".encode() + body
        digests = [hmac.digest(key, signed, "sha256") for key in self._keys]
        return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


class Answer(NamedTuple):
    """What became of one attempt; `retry_after` is in seconds."""

    fate: Literal["delivered", "again", "refused", "gone"]
    reason: str
    retry_after: float | None = None


class Delivery:
    """One event on its way; `due` is the monotonic time of its next attempt."""

    def __init__(self, message_id: str, body: bytes) -> None:
        self.message_id = message_id
        self.body = body
        self.due = 0.0
        self.task: asyncio.Task[None] | None = None


class Webhook(Plugin):
    """POSTs each ended task to one URL, signed, until it is accepted or the attempts are used up.

    Counts `delivered`, `retried` (an attempt that is followed by another), `refused` (an answer that
    another attempt would not change), `exhausted`, `gone` (the receiver answered 410 once and gets no
    more), `dropped` (the queue was full) and `abandoned` (the gateway stopped).
    """

    name = "webhook"

    def __init__(self, options: dict[str, Any], world: TimeAndChance = MACHINE) -> None:
        super().__init__(options)
        self._world = world
        self._waiting: dict[Delivery, None] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._deadline = float("inf")
        self._open_at = 0.0
        self._gone = False
        self._flooded = False
        self._where = "webhook"
        self._group: asyncio.TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<Webhook to {self._where}: {len(self._waiting)} waiting{', gone' if self._gone else ''}>"

    def validate(self) -> None:
        """Raise `PluginError` where an option is missing or wrong; reads the secret."""
        try:
            options = msgspec.convert(self.options, Options)
        except msgspec.ValidationError as error:
            raise PluginError(str(error).replace("`$.", "`")) from None
        self._where = _check_url(options)
        _check_headers(options.headers)
        self._options = options
        self._timeout = _seconds("timeout", options.timeout)
        self._first = _seconds("backoff.first", options.backoff.first)
        self._max = _seconds("backoff.max", options.backoff.max)
        self._signer = Signer(_read_secret(options))

    async def start(self) -> None:
        """Open the HTTP client."""
        self._session = aiohttp.ClientSession(
            headers={"user-agent": "mcp-task-gateway", "content-type": "application/json"}
            | {name.lower(): value for name, value in self._options.headers.items()},
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            connector=aiohttp.TCPConnector(limit=AT_ONCE),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def run(self) -> None:
        """Own the deliveries: a group, so that none outlives the plugin."""
        async with asyncio.TaskGroup() as self._group:
            self._ready.set()
            await self._stopping.wait()

    async def task_ended(self, event: TaskEnded) -> None:
        """Queue a delivery, at the cost of the oldest where the queue is full."""
        if self._options.statuses and event.status not in self._options.statuses:
            return
        await self._ready.wait()
        if self._gone or self._group is None:
            self.count("gone")
            return
        if len(self._waiting) >= self._options.queue:
            self._drop_oldest()
        delivery = Delivery(*compose(event))
        self._waiting[delivery] = None
        delivery.task = self._group.create_task(
            self._deliver(delivery), name=f"webhook {delivery.message_id}"
        )

    async def stop(self, seconds: float) -> None:
        """Finish what can be delivered within `seconds`; the rest is counted and logged."""
        self._deadline = self._world.monotonic() + seconds
        hopeless = [delivery for delivery in self._waiting if self._next(delivery) > self._deadline]
        tasks = {delivery.task for delivery in self._waiting if delivery.task and delivery not in hopeless}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        left = [delivery for delivery in list(self._waiting) if self._give_up(delivery, "abandoned")]
        if left:
            _log.warning("%s: %d events were not delivered before the stop", self._where, len(left))
            await asyncio.wait({delivery.task for delivery in left if delivery.task})
        self._stopping.set()
        if self._session is not None:
            await self._session.close()

    async def _deliver(self, delivery: Delivery) -> None:
        fate = "failed"
        try:
            fate = await self._attempts(delivery)
        except Exception:  # noqa: BLE001 - logged; in the group it would end every other delivery
            _log.exception("%s: %s failed", self._where, delivery.message_id)
        if self._waiting.pop(delivery, delivery) is None:
            self.count(fate)

    async def _attempts(self, delivery: Delivery) -> str:
        """Attempt until there is nothing more to attempt; return what is counted."""
        attempt = 0
        while await self._turn(delivery):
            async with self._slots:
                # The receiver may have closed its door while this delivery waited for a slot.
                if self._gone or self._next(delivery) > self._world.monotonic():
                    continue
                attempt += 1
                answer = await self._attempt(delivery)
            if answer.fate == "delivered":
                self._flooded = False
                return "delivered"
            again = answer.fate == "again" and attempt < self._options.attempts
            level = logging.INFO if again else logging.WARNING
            _log.log(
                level, "%s: %s: attempt %d: %s", self._where, delivery.message_id, attempt, answer.reason
            )
            if not again:
                self._gone = self._gone or answer.fate == "gone"
                return "exhausted" if answer.fate == "again" else answer.fate
            self.count("retried")
            delivery.due = self._world.monotonic() + self._pause(attempt, answer)
        return "gone" if self._gone else "abandoned"

    async def _turn(self, delivery: Delivery) -> bool:
        """Wait until the next attempt is due; false where there will be none."""
        while not self._gone and (due := self._next(delivery)) <= self._deadline:
            if (wait := due - self._world.monotonic()) <= 0:
                return True
            await self._world.sleep(wait)
        return False

    def _next(self, delivery: Delivery) -> float:
        return max(delivery.due, self._open_at)

    def _pause(self, attempt: int, answer: Answer) -> float:
        """Return the seconds until the next attempt; a `Retry-After` holds for all deliveries."""
        longest = min(self._max, self._first * 2.0 ** (attempt - 1))
        pause = longest * (0.5 + 0.5 * self._world.random())
        if answer.retry_after is None:
            return pause
        wanted = min(answer.retry_after, LONGEST_RETRY_AFTER)
        self._open_at = max(self._open_at, self._world.monotonic() + wanted)
        return max(pause, wanted)

    async def _attempt(self, delivery: Delivery) -> Answer:
        """POST once; foreign exceptions become answers. A redirect is not followed."""
        assert self._session is not None
        timestamp = self._world.time_ns() // 1_000_000_000
        headers = {
            "webhook-id": delivery.message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": self._signer.sign(delivery.message_id, timestamp, delivery.body),
        }
        url = self._options.url
        post = self._session.post(url, data=delivery.body, headers=headers, allow_redirects=False)
        try:
            async with post as response:
                return self._judge(response.status, response.headers.get("Retry-After"))
        except TimeoutError:
            return Answer("again", f"no answer within {self._timeout:g} s")
        except (aiohttp.ClientError, OSError) as error:
            # Only the class: the text may hold the URL, and that a secret.
            return Answer("again", type(error).__name__)

    def _judge(self, status: int, retry_after: str | None) -> Answer:
        """Return what an HTTP status means (Standard Webhooks 1.0.0, "Delivery success and failure")."""
        reason = f"answered {status}"
        if 200 <= status < 300:
            return Answer("delivered", reason)
        if status in TRY_AGAIN or status >= 500:
            return Answer("again", reason, _retry_after(retry_after, self._world.time_ns() / 1e9))
        if status == 410:
            return Answer("gone", reason + ", so nothing more is sent until the gateway is started again")
        return Answer("refused", reason + ", which another attempt would not change")

    def _drop_oldest(self) -> None:
        self._give_up(next(iter(self._waiting)), "dropped")
        if not self._flooded:
            self._flooded = True
            _log.warning("%s: the queue is full, the oldest events are dropped", self._where)

    def _give_up(self, delivery: Delivery, fate: str) -> bool:
        del self._waiting[delivery]
        self.count(fate)
        return delivery.task is not None and delivery.task.cancel()


def compose(event: TaskEnded) -> tuple[str, bytes]:
    """Return the id and the JSON body that announce `event`; the same event has the same id everywhere."""
    facts = (event.upstream, event.scope, event.task_id, event.created_at, event.ended_at)
    # ASCII-only JSON, so that a lone surrogate in a client's task id stays representable.
    message_id = "msg_" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    body = {
        "type": "task.ended",
        "id": message_id,
        "time": _rfc3339(event.ended_at),
        "task": {
            "id": event.task_id,
            "upstream": event.upstream,
            "scope": event.scope,
            "session": event.session,
            "dialect": event.dialect,
            "method": event.method,
            "tool": event.tool,
            "status": event.status,
            "is_error": event.is_error,
            "error": event.error[:ERROR_CHARS] if event.error is not None else None,
            "created_at": _rfc3339(event.created_at),
            "ended_at": _rfc3339(event.ended_at),
        },
    }
    return message_id, json.dumps(body, separators=(",", ":")).encode()


def _rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a `Retry-After` asks for (RFC 9110 section 10.2.3); `None` for nonsense."""
    if value is None or re.fullmatch(r"[0-9]{1,9}", value):
        return None if value is None else float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _seconds(option: str, value: str | float) -> float:
    """Return a duration in seconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0 if isinstance(value, str) else value
    if not 0 < seconds <= 86_400:
        raise PluginError(f"{option} must be a duration such as 10s or 5m, at most 24h")
    return seconds


def _key(secret: str) -> bytes:
    """Return the bytes of a secret in the form of Standard Webhooks 1.0.0, "Signature scheme"."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise PluginError("the secret must be whsec_ followed by the base64 of 24 to 64 bytes")
    return key


def _read_secret(options: Options) -> str:
    if sum(place is not None for place in (options.secret, options.secret_env, options.secret_file)) != 1:
        raise PluginError("give exactly one of secret, secret_env and secret_file")
    if options.secret_env is not None and options.secret_env not in os.environ:
        raise PluginError(f"secret_env: the environment has no {options.secret_env}")
    if options.secret_file is not None:
        try:
            return Path(options.secret_file).read_text("ascii")
        except (OSError, ValueError) as error:
            raise PluginError(f"secret_file: cannot be read: {type(error).__name__}") from error
    return os.environ[options.secret_env] if options.secret_env is not None else options.secret or ""


def _check_url(options: Options) -> str:
    """Return scheme, host and port of the URL: what may be logged of it."""
    try:
        parts = urlsplit(options.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise PluginError("url must be an absolute http or https URL")
    if parts.username is not None:
        raise PluginError("url must not hold credentials; headers can")
    if parts.scheme == "http" and not options.allow_http:
        raise PluginError("url must be https; allow_http: true permits http")
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            raise PluginError(f"headers: {name!r} is not a name and a value that HTTP allows")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-"):
            raise PluginError(f"headers: {name} is the plugin's own")
