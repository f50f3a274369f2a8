"""The configuration as frozen slices; one class for each section of the YAML.

Durations are milliseconds and sizes are bytes once they are read. Every option says here what it
means: the JSON Schema and the reference page are made from these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from gateway.config.kinds import (
    DURATION,
    PORT,
    RATE,
    WORKERS,
    HeaderName,
    UpstreamName,
    count,
    duration,
    size,
)
from gateway.config.slice import Slice
from gateway.config.units import read_duration, read_size
from gateway.config.upstream import UpstreamConfig


class ListenConfig(Slice):
    """Where clients connect."""

    host: str = Field(default="127.0.0.1", description="Address that clients connect to.")
    port: Annotated[int, PORT] = Field(
        default=8080, description="Port that clients connect to; 0 takes a free one."
    )
    allowed_origins: tuple[str, ...] = Field(
        default=(),
        description="Values of the `Origin` header that are let in, for clients that run in browsers. "
        "Empty: only loopback origins. `*`: any.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="More values of the `Host` header that are let in when `host` is a loopback address "
        "(the defence against DNS rebinding). `*`: any.",
    )


class AdminConfig(Slice):
    """Where operators look: `/metrics`, `/healthz`, `/readyz`."""

    host: str = Field(default="127.0.0.1", description="Address of metrics and health.")
    port: Annotated[int, PORT] = Field(
        default=9090, description="Port of metrics and health; 0 takes a free one."
    )


class StoreConfig(Slice):
    """Where tasks are kept."""

    url: SecretStr = Field(
        default=SecretStr("memory://"),
        description="`memory://` keeps tasks in this process; `redis://HOST:PORT/DB`, `unix://PATH`, "
        "`redis+sentinel://HOST:PORT,HOST:PORT/SERVICE` and `redis+cluster://HOST:PORT` keep them "
        "in Redis or Valkey; with TLS it is `rediss`. May hold `${ENV_NAME}`.",
    )
    prefix: str = Field(
        default="mtg:",
        max_length=64,
        pattern=r"^[A-Za-z0-9:._-]*$",
        description="What every key in Redis begins with.",
    )
    timeout: Annotated[int, DURATION] = Field(
        default=read_duration("2s"),
        description="How long the store may take to answer before it counts as away.",
    )
    password: SecretStr | None = Field(
        default=None,
        description="Password of the store, in place of one in the URL. May hold `${ENV_NAME}`.",
    )
    password_file: Path | None = Field(default=None, description="File that holds the password.")


class IdentityConfig(Slice):
    """How the gateway knows who is asking."""

    header: HeaderName | None = Field(
        default=None,
        description="Header that names the principal, set by a proxy in front that you trust. Without it, "
        "the principal is the `Authorization` credential where there is one.",
    )


class RatesConfig(Slice):
    """How often one scope may ask, as `number/second`, `/minute`, `/hour`, `/day`, or `off`."""

    create: Annotated[str | None, RATE] = Field(default="600/minute", description="Creations of tasks.")
    get: Annotated[str | None, RATE] = Field(
        default="6000/minute", description="Status requests (`tasks/get`)."
    )
    result: Annotated[str | None, RATE] = Field(
        default="3000/minute", description="Result requests (`tasks/result`)."
    )
    list: Annotated[str | None, RATE] = Field(
        default="600/minute", description="List requests (`tasks/list`)."
    )


class LimitsConfig(Slice):
    """What is bounded, and where the bound is."""

    tasks_per_scope: Annotated[int, count()] = Field(
        default=100, description="Tasks of one scope that have not ended."
    )
    stored_tasks_per_scope: Annotated[int, count()] = Field(
        default=1000,
        description="Tasks of one scope in all, with those that have ended and are still kept.",
    )
    anonymous_tasks: Annotated[int, count()] = Field(
        default=10_000,
        description="Tasks of one upstream that have not ended and that belong to nobody: made in "
        "the stateless era without a credential. Ten times as many may be stored.",
    )
    request_bytes: Annotated[int, size("1KiB")] = Field(
        default=read_size("4MiB"), description="Size of a request body, and of one line of a stdio peer."
    )
    result_bytes: Annotated[int, size("1KiB")] = Field(
        default=read_size("16MiB"),
        description="Size of the result of a task. A task with a larger one fails.",
    )
    log_entries: Annotated[int, count()] = Field(
        default=1000, description="Messages kept in the event log of one task; the oldest go first."
    )
    log_bytes: Annotated[int, size("1KiB")] = Field(
        default=read_size("16MiB"),
        description="Size of the event log of one task; what comes beyond it cannot be read again later.",
    )
    connections: Annotated[int, count()] = Field(
        default=10_000,
        description="Connections of clients to one replica, and requests that it answers at the same time. "
        "Beyond it requests are answered 503 with `Retry-After`.",
    )
    sessions: Annotated[int, count()] = Field(
        default=10_000,
        description="Sessions with open state on one replica; and as many subscriptions of clients that "
        "have no sessions.",
    )
    stream_queue_bytes: Annotated[int, size("1KiB")] = Field(
        default=read_size("1MiB"), description="What may wait for one client that reads its stream slowly."
    )
    pending_requests: Annotated[int, count()] = Field(
        default=64, description="Server requests of one task that wait for an answer at the same time."
    )
    task_id_bytes: Annotated[int, count(16, 65_536)] = Field(
        default=1024, description="Length of a task id that a client chooses, in bytes of UTF-8."
    )
    rates: RatesConfig = Field(
        default=RatesConfig(), description="How often one scope may ask; see `limits.rates`."
    )


class LogConfig(Slice):
    """What is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level written."
    )
    format: Literal["json", "text"] = Field(
        default="json", description="One JSON object a line, or plain text."
    )


class PluginConfig(BaseModel):
    """A plugin and its options."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str = Field(
        min_length=1,
        max_length=128,
        description="Name of the plugin. All other keys are the plugin's own options; text in them may "
        "hold `${ENV_NAME}`.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """What the plugin is given: everything but the name."""
        return dict(self.model_extra or {})

    def __repr__(self) -> str:
        return f"PluginConfig(name={self.name!r}, options={sorted(self.options)})"

    __str__ = __repr__


class Config(Slice):
    """The whole configuration."""

    listen: ListenConfig = Field(default=ListenConfig(), description="Where clients connect.")
    admin: AdminConfig | None = Field(
        default=AdminConfig(), description="Where metrics and health are; `off` for nowhere."
    )
    workers: Annotated[int, WORKERS] = Field(
        default=1,
        description="Processes that serve the one port, each a replica of its own; `auto` (or 0) for one "
        "on each core that may be used. More than one needs a store that they share. `serve --workers` "
        "goes before this.",
    )
    store: StoreConfig = Field(default=StoreConfig(), description="Where tasks are kept.")
    secret: SecretStr | None = Field(
        default=None,
        description="Key that seals session ids, at least 16 characters, the same on all replicas. Without "
        "one, the first replica makes one and keeps it in the store. May hold `${ENV_NAME}`.",
    )
    secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    identity: IdentityConfig = Field(
        default=IdentityConfig(), description="How the gateway knows who is asking."
    )
    upstreams: dict[UpstreamName, UpstreamConfig] = Field(
        default={}, description="The MCP servers behind the gateway, by name; at least one."
    )
    limits: LimitsConfig = Field(default=LimitsConfig(), description="What is bounded, and where.")
    drain: Annotated[int, duration("0s")] = Field(
        default=read_duration("30s"),
        description="How long running tasks may go on after SIGTERM or the end of stdin.",
    )
    drain_delay: Annotated[int, duration("0s")] = Field(
        default=read_duration("5s"),
        description="How long a replica with a shared store goes on as before after SIGTERM, only not "
        "ready any more, so that load balancers notice; then `drain` begins. SIGINT skips it.",
    )
    lease: Annotated[int, duration("1s")] = Field(
        default=read_duration("15s"),
        description="How long a replica that went silent keeps its tasks before another takes them over.",
    )
    log: LogConfig = Field(default=LogConfig(), description="What is written to stderr.")
    plugins: tuple[PluginConfig, ...] = Field(
        default=(), description="Plugins, in the order in which they are told."
    )

    @field_validator("admin", mode="before")
    @classmethod
    def _admin_off(cls, value: object) -> object:
        return None if value is False or value == "off" else value

    @field_validator("secret")
    @classmethod
    def _secret_long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 16:
            raise ValueError("the secret is too short; use at least 16 random characters")
        return value
