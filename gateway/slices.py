"""What the rooms are made with, cut from the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from gateway.config.model import Config
from gateway.config.upstream import UpstreamConfig
from gateway.hooks.loader import load as load_plugins
from gateway.protocol.errors import PluginError
from gateway.service.order import ServiceLimits
from gateway.session.begin import TaskLimits
from gateway.store.port import Bounds, RateKind
from gateway.tasks.policy import PolicyBook
from gateway.upstream.options import CommandOptions, UrlOptions

_MAX_FIELD: Final = 16 * 1024


def patterns_of(config: Config) -> list[str]:
    """Return the patterns and methods that rules name, for metric labels."""
    return [
        pattern
        for upstream in config.upstreams.values()
        for pattern in (*upstream.tasks.tools, *upstream.tasks.methods)
    ]


def rates_of(config: Config) -> dict[RateKind, str | None]:
    """Return how often a scope may ask."""
    rates = config.limits.rates
    return {"create": rates.create, "get": rates.get, "result": rates.result, "list": rates.list}


def service_limits(config: Config) -> ServiceLimits:
    """Return the bounds of the task service."""
    limits = config.limits
    return ServiceLimits(
        bounds=Bounds(limits.tasks_per_scope, limits.stored_tasks_per_scope),
        result_bytes=limits.result_bytes,
        stream_queue_bytes=limits.stream_queue_bytes,
        pending_requests=limits.pending_requests,
        log_bytes=limits.log_bytes,
        lease_ms=config.lease,
    )


def task_limits(config: Config) -> TaskLimits:
    """Return the bounds of what becomes a task."""
    return TaskLimits(config.limits.task_id_bytes, config.limits.anonymous_tasks)


def options_of(name: str, upstream: UpstreamConfig, config: Config) -> UrlOptions | CommandOptions:
    """Return how an upstream is reached."""
    largest = config.limits.result_bytes + _MAX_FIELD
    if upstream.command is not None:
        return command_options(name, config)
    return UrlOptions(
        name=name,
        url=upstream.url.get_secret_value() if upstream.url is not None else "",
        transport=upstream.transport,
        headers={key: value.get_secret_value() for key, value in upstream.headers.items()},
        verify_tls=upstream.verify_tls,
        ca_file=None if upstream.ca_file is None else str(upstream.ca_file),
        connect_timeout=upstream.connect_timeout / 1000,
        max_connections=upstream.max_connections,
        max_streams=config.limits.sessions,
        max_answer=largest,
        max_links=upstream.max_links,
        idle=upstream.idle / 1000,
        start_timeout=upstream.start_timeout / 1000,
    )


def way_of(name: str, upstream: UpstreamConfig, config: Config) -> tuple[object, ...]:
    """Return all that decides how an upstream is reached: where that is the same it can be kept."""
    return options_of(name, upstream, config), upstream.era, upstream.max_sessions


def command_options(name: str, config: Config) -> CommandOptions:
    """Return how an upstream that is a command is started."""
    upstream = config.upstreams[name]
    return CommandOptions(
        name=name,
        command=upstream.command or (),
        env={key: value.get_secret_value() for key, value in upstream.env.items()},
        cwd=None if upstream.cwd is None else str(upstream.cwd),
        start_timeout=upstream.start_timeout / 1000,
        max_line=config.limits.result_bytes + _MAX_FIELD,
        max_links=upstream.max_links,
        idle=upstream.idle / 1000,
    )


def in_place(options: CommandOptions) -> CommandOptions:
    """Give the server what its host gave the gateway in its place: the whole environment but ours."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("GATEWAY_")}
    return msgspec.structs.replace(options, env={**inherited, **options.env})


def taskable(policies: PolicyBook) -> list[str]:
    """Return the methods that some rule lets be tasks."""
    rules = [policies.default, *(policy for _, policy in policies.tools)]
    methods = ["tools/call"] if any(rule.mode != "forbidden" for rule in rules) else []
    return methods + [name for name, rule in policies.methods.items() if rule.mode != "forbidden"]


def may_refuse(policies: PolicyBook) -> bool:
    """Tell whether some rule refuses calls without task metadata."""
    rules = (policies.default, *(rule for _, rule in policies.tools), *policies.methods.values())
    return any(rule.refuse_plain and rule.mode == "required" for rule in rules)


def abandoned_seconds(config: Config) -> float:
    """Return the longest time that any upstream's calls may take."""
    return max(upstream.tasks.timeout for upstream in config.upstreams.values()) / 1000


def store_url(config: Config) -> str:
    """Return where the store is, with the password where that is given apart."""
    url = config.store.url.get_secret_value()
    if config.store.password is None:
        return url
    parts = urlsplit(url)
    name, _, rest = parts.netloc.rpartition("@")
    password = quote(config.store.password.get_secret_value(), safe="")
    return parts._replace(netloc=f"{name.partition(':')[0]}:{password}@{rest}").geturl()


def plugin_mistakes(config: Config) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what is wrong with the plugins, each with its place in the configuration."""
    for number, plugin in enumerate(config.plugins):
        try:
            (found,) = load_plugins([(plugin.name, plugin.options)])
            found.validate()
        except PluginError as wrong:
            yield ("plugins", number), str(wrong)
