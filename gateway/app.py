"""Builds every object from the configuration and hands them to each other; starts and drains; no logic."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gateway import __version__
from gateway.aio.clock import SystemClock
from gateway.aio.spawn import Crew
from gateway.config.model import Config
from gateway.config.slices import policy_book
from gateway.config.upstream import UpstreamConfig
from gateway.crossing.crossing import UpstreamCrossing
from gateway.crossing.driving import DrivingChannel
from gateway.crossing.hearsay import Hearsay
from gateway.crossing.kept import SharedState
from gateway.crossing.port import Crossing
from gateway.crossing.tools import tool_support_over
from gateway.dialects.choose import Dialects
from gateway.dialects.sep1686 import Sep1686
from gateway.dialects.sep2663 import Sep2663
from gateway.dialects.v2025_11_25 import Tasks20251125
from gateway.far.office import Office
from gateway.far.upstream import SharedUpstream
from gateway.hooks.loader import load as load_plugins
from gateway.hooks.run import Hooks
from gateway.observe.families import part
from gateway.observe.logs import TaskLog
from gateway.observe.metrics import Metrics, method_class
from gateway.protocol.envelope import dump
from gateway.protocol.errors import ConfigError, StoreAway
from gateway.service.leases import Leases
from gateway.service.service import TaskService
from gateway.service.witness import Witness
from gateway.session.about import Desk
from gateway.session.begin import Beginning
from gateway.session.book import SessionBook
from gateway.session.bridged import Bridged
from gateway.session.calling import Calling
from gateway.session.courses import Courses
from gateway.session.extension import Extension
from gateway.session.hearing import Hearing
from gateway.session.held import HeldCalls
from gateway.session.infos import Infos
from gateway.session.listening import Listening
from gateway.session.names import Names
from gateway.session.opening import Opening
from gateway.session.own import OwnTasks
from gateway.session.pace import Pace
from gateway.session.principal import Principals
from gateway.session.rebuilding import Rebuilding
from gateway.session.router import Rooms, Router
from gateway.session.stateless import Stateless
from gateway.session.states import States
from gateway.session.subscribing import Subscribing
from gateway.session.token import Sealer
from gateway.session.visit import Served
from gateway.slices import (
    in_place,
    may_refuse,
    options_of,
    patterns_of,
    rates_of,
    service_limits,
    store_url,
    task_limits,
    taskable,
    way_of,
)
from gateway.store.bus import RedisBus
from gateway.store.clock import StoreClock
from gateway.store.kept import RedisKept
from gateway.store.post import RedisPost
from gateway.store.rates import StoreRates
from gateway.store.redis import RedisStore, open_store
from gateway.upstream.auto import build
from gateway.upstream.options import CommandOptions
from gateway.upstream.pool import LinkPool
from gateway.upstream.port import Upstream

_log: Final = logging.getLogger("gateway")
_PLUGIN_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 5
_TELL_EVERY: Final = 12
Reached = tuple[Upstream, Crossing]


class House:
    """All rooms of one process, furnished. `start` before use, `stop` after."""

    def __init__(self, config: Config, *, in_place: bool = False) -> None:
        self.config = config
        self.replica = secrets.token_hex(8)
        self.clock = SystemClock()
        self.crew = Crew("house")
        self._down: set[str] = set()
        self.metrics = Metrics(
            __version__, config.upstreams, patterns_of(config), [plugin.name for plugin in config.plugins]
        )
        self.hooks = Hooks(
            load_plugins([(plugin.name, plugin.options) for plugin in config.plugins]),
            count=lambda plugin, outcome: self.metrics.hook_events.labels(plugin, outcome).inc(),
            drop=lambda: self.metrics.events_dropped.labels("hooks").inc(),
        )
        self.hooks.validate()
        self.witness = Witness(self.metrics, TaskLog(), self.hooks.publish)
        self.store = self._open_store()
        self.store_clock = StoreClock(self.store.link, self.clock)
        self.bus = RedisBus(self.store.link, self.replica, clock=self.clock)
        self.rates = StoreRates(self.store.link, rates_of(config), clock=self.clock)
        self.service = TaskService(
            self.replica, self.store, self.bus, self.witness, self.clock, service_limits(config)
        )
        self.office = self._open_office()
        self._in_place, self._key = in_place, b""
        # Made with the secret, which a start that fails never gets.
        self.held: HeldCalls | None = None
        self._beginning: Beginning | None = None
        self.subscribing: Subscribing | None = None
        self._sep1686, self._sep2663 = Sep1686(), Sep2663()
        self.served = {
            name: self._serve(name, upstream, self._reach(name, upstream, config))
            for name, upstream in config.upstreams.items()
        }
        self._retired: list[Served] = []

    async def start(self) -> None:
        """Bring the rooms to life; waits for the store where that holds the only secret."""
        await self.hooks.start()
        key = self._key = await self._secret()
        self.principals = Principals(key, self.config.identity.header)
        self.router = self._router(key)
        if self.office is not None:
            self.office.start(key)
        leases = Leases(self.service, self.store, self.witness, self.store_clock, self.config.lease)
        self.crew.keep(leases.run, "leases")
        self.crew.keep(self.service.obey, "commands")

    def reconfigure(self, config: Config) -> None:
        """Serve by another configuration from now on.

        An upstream that is reached as before is left alone. One that is not, or is there no more, serves
        those who have it to their end. Raises `ConfigError`; nothing has changed then.
        """
        old = self.config
        self.metrics.admit(config.upstreams, patterns_of(config))
        served: dict[str, Served] = {}
        try:
            for name, upstream in config.upstreams.items():
                reached = self._kept(name, config) or self._reach(name, upstream, config)
                served[name] = self._serve(name, upstream, reached)
        except ConfigError:
            self._replace(served, self.served, lambda _: 0)
            raise
        self.rates.reconfigure(rates_of(config))
        self.config = config
        self.service.reconfigure(service_limits(config).bounds)
        self.service.turns.reconfigure({name: one.policies for name, one in served.items()})
        if self._beginning is not None:
            self._beginning.reconfigure(task_limits(config))
        self._replace(
            self.served,
            served,
            lambda name: max(old.upstreams[name].tasks.timeout, old.upstreams[name].idle),
        )
        # Those who look upstreams up share this one table.
        self.served.clear()
        self.served.update(served)

    def _kept(self, name: str, config: Config) -> Reached | None:
        """Return what an upstream is reached by now, where that is right for another configuration."""
        before, after = self.config.upstreams.get(name), config.upstreams[name]
        if before is None or way_of(name, before, self.config) != way_of(name, after, config):
            return None
        return self.served[name].upstream, self.served[name].crossing

    def _replace(
        self, before: Mapping[str, Served], after: Mapping[str, Served], patience: Callable[[str], int]
    ) -> None:
        """Retire what is not there after; `patience` is in milliseconds."""
        for name, served in before.items():
            if name not in after or after[name].upstream is not served.upstream:
                self._retired.append(served)
                self.crew.spawn(self._retire(served, patience(name) / 1000), "retire an upstream")

    async def _retire(self, served: Served, patience: float) -> None:
        """Let go of an upstream when no call to it can be under way any more."""
        await self.clock.sleep(patience)
        await served.crossing.close()
        await served.upstream.close()
        self._retired.remove(served)

    def end_streams(self) -> None:
        """End every stream that is no answer to a call, so that clients open them elsewhere."""
        self.service.leave()
        self.end_subscriptions()

    def end_subscriptions(self) -> None:
        """End every subscription, each with a last word."""
        if self.subscribing is not None:
            self.subscribing.end_all()

    async def stop(self) -> None:
        """End what still runs, store how it ended, let go of everything."""
        await self.service.close()
        if self.subscribing is not None:
            await self.subscribing.close()
        if self.held is not None:
            await self.held.close()
        await self.crew.close()
        if self.office is not None:
            await self.office.close()
        await self.bus.close()
        for served in (*self.served.values(), *self._retired):
            await served.crossing.close()
            await served.upstream.close()
        await self.hooks.stop(_PLUGIN_SECONDS)
        await self.store.close()
        _log.info("stopped")

    async def _secret(self) -> bytes:
        if self.config.secret is not None:
            return self.config.secret.get_secret_value().encode()
        tried = 0
        while True:
            try:
                return await self.store.shared_secret(lambda: secrets.token_bytes(32))
            except StoreAway as away:
                level = logging.WARNING if tried % _TELL_EVERY == 0 else logging.DEBUG
                _log.log(level, "waiting for the store, which has the secret that seals sessions: %s", away)
                tried += 1
                await self.clock.sleep(min(tried, _STORE_SECONDS))

    def _open_store(self) -> RedisStore:
        store = self.config.store
        return open_store(
            store_url(self.config),
            prefix=store.prefix,
            timeout=store.timeout / 1000,
            log_length=self.config.limits.log_entries,
            clock=self.clock,
            observe=self._observe_store,
        )

    def _open_office(self) -> Office | None:
        """Return the way to links of other replicas; one process that shares nothing needs none."""
        if self.store.link.in_process:
            return None
        post, lease = RedisPost(self.store.link, self.bus, self.replica), self.config.lease / 1000
        return Office(self.replica, post, post, self.clock, lease=lease, count=self._count_lines)

    def _count_lines(self, side: str, step: int) -> None:
        self.metrics.far_lines.labels(side).inc(step)

    def _observe_store(self, operation: str, seconds: float, answered: bool) -> None:
        self.metrics.store_seconds.labels(operation).observe(seconds)
        if not answered:
            self.metrics.store_failures.labels(operation).inc()

    def _reach(self, name: str, upstream: UpstreamConfig, config: Config) -> Reached:
        links, held = (part(one.labels(name)) for one in (self.metrics.links_now, self.metrics.held_now))
        options = options_of(name, upstream, config)
        if self._in_place and isinstance(options, CommandOptions):
            options = in_place(options)
        built = reached = build(options, self.clock, links)
        carriers = state = hearsay = None
        if self.office is not None:
            kept, say = RedisKept(self.store.link, self.bus), self.service.tell_said
            state, hearsay = SharedState(name, kept, say), Hearsay(name, kept, say, lambda: self._key)
            if isinstance(built.links, LinkPool):
                settle = upstream.tasks.timeout / 1000
                reached = SharedUpstream(built, built.links, self.office, settle=settle)
                carriers = reached.links
        crossing = UpstreamCrossing(
            built,
            self.clock,
            max_sessions=upstream.max_sessions,
            idle=upstream.idle / 1000,
            start_timeout=upstream.start_timeout / 1000,
            info=dump({"name": "mcp-task-gateway", "version": __version__}),
            era=None if upstream.era == "auto" else upstream.era,
            on_sessions=held,
            carriers=carriers,
            shared=state,
            hearsay=hearsay,
        )
        return reached, crossing

    def _serve(self, name: str, upstream: UpstreamConfig, reached: Reached) -> Served:
        built, crossing = reached
        policies = policy_book(upstream.tasks)
        dialects: Dialects = {
            "a": self._sep1686,
            "b": Tasks20251125(upstream.tasks.tool_errors),
            "c": self._sep2663,
            "none": self._sep2663,
        }
        return Served(
            name=name,
            upstream=built,
            dialects=dialects,
            crossing=crossing,
            answer_within=upstream.answer_within,
            policies=policies,
            scope_mode=upstream.scope,
            taskable=tuple(taskable(policies)),
            plain_may_be_refused=may_refuse(policies),
            called=partial(self._observe_call, name),
        )

    def _observe_call(self, upstream: str, method: str, outcome: str, seconds: float) -> None:
        name = method_class(method)
        self.metrics.upstream_calls.labels(upstream, name, outcome).inc()
        self.metrics.upstream_call_seconds.labels(upstream, name).observe(seconds)
        if (outcome == "lost") != (upstream in self._down):
            self._tell_reach(upstream, lost=outcome == "lost")

    def _tell_reach(self, upstream: str, *, lost: bool) -> None:
        """Say once that an upstream is away, and once that it is back."""
        if lost:
            self._down.add(upstream)
            _log.warning("upstream %s cannot be reached", upstream)
        else:
            self._down.discard(upstream)
            _log.info("upstream %s can be reached again", upstream)

    def count_message(self, upstream: str, method: str, outcome: str) -> None:
        """Count one message of a client on a pipe."""
        self.metrics.requests.labels(upstream, method_class(method), outcome).inc()

    async def _drop_links(self, tag: str) -> None:
        for served in self.served.values():
            if isinstance(served.upstream, SharedUpstream):
                await served.upstream.drop_here(tag)
            elif served.upstream.links is not None:
                await served.upstream.links.drop(tag)
            await served.crossing.links.drop(tag)

    def _router(self, key: bytes) -> Router:
        limits = self.config.limits
        sealer, names, pace = Sealer(key), Names(key), Pace(self.witness, self.clock)
        book = SessionBook(
            self.store,
            self.clock,
            limits.sessions,
            lambda name, count: self.metrics.sessions_now.labels(name).set(count),
        )

        def session_ended(tag: str) -> None:
            book.forget(tag)
            if not self.service.runs_here(tag):
                self.crew.spawn(self._drop_links(tag), "drop links")

        self.service.on_session_ended = session_ended
        own = OwnTasks(
            self.clock, tool_support_over, lambda channel: DrivingChannel(channel, self.clock, self.crew)
        )
        beginning = self._beginning = Beginning(
            self.service, self.rates, names, own, task_limits(self.config)
        )
        # What is sealed under a secret of the store's own is open to who reads the store.
        courses = Courses(key, keeps_credentials=self.config.secret is not None)
        self.service.rebuild = Rebuilding(lambda: self.served, courses, own).rebuild
        self.service.hands_over = not self.store.link.in_process
        if self.service.hands_over:
            beginning.courses = courses
        calling = Calling(beginning, own)
        desk = Desk(self.service, self.rates, names, pace)
        rooms = Rooms(
            sealer=sealer,
            principals=self.principals,
            book=book,
            opening=Opening(sealer, book),
            names=names,
            calling=calling,
            hearing=Hearing(self.service, calling, self.served),
            desk=desk,
            stateless=self._stateless(key, names, pace, beginning),
            listening=Listening(self.service, desk, self.rates, self.crew, self.clock),
            service=self.service,
        )
        return Router(rooms, self.served)

    def _stateless(self, key: bytes, names: Names, pace: Pace, beginning: Beginning) -> Stateless:
        infos = Infos()
        self.held = HeldCalls(self.service, beginning, States(key, self.store_clock), infos, self.clock)
        limits = self.config.limits
        self.subscribing = Subscribing(
            self.service, self.rates, names, limit=limits.stream_queue_bytes, most=limits.sessions
        )
        return Stateless(
            Bridged(self.service, self.held, infos, self.clock),
            Extension(self.service, self.rates, names, pace, infos),
            self.subscribing,
            infos,
        )
