"""One upstream of the configuration, and what it says of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, model_validator

from gateway.config.kinds import DURATION, HeaderName, HeaderValue, count, duration, or_unlimited
from gateway.config.slice import Slice
from gateway.config.units import read_duration
from gateway.tasks.policy import Mode

MODE = (
    "`forbidden`: never a task; who asks for one gets a plain result, or -32601 in sessions of protocol "
    "2025-11-25. `optional`: the client decides, or, where that is left to the server, `inline_within`. "
    "`required`: a task only; a plain call is refused with -32601 in sessions of protocol 2025-11-25 (in "
    "older ones as `refuse_plain` says), with -32021 to stateless clients that do not take tasks. Some "
    "clients do not call such a tool at all: `optional` is the better word."
)
CONCURRENT = or_unlimited(count())
FOREVER = or_unlimited(DURATION)
OnLoss = Literal["fail", "retry"]

_POLL = "How often clients are told to ask for the status."
_TIMEOUT = "How long a call that runs as a task may take; then it fails and the upstream is told."
_CONCURRENT = (
    "Calls that run as tasks at the same time, on all replicas together; more wait for their turn, which "
    "goes round among those who wait (scopes), and to the first of each. Calls that are no tasks are not "
    "counted."
)
_PER_SCOPE = "The same for the calls of one scope; each rule counts its own."
_QUEUED = (
    "Calls that may wait for a turn; beyond it new tasks are refused with 429 and `Retry-After`. One that "
    "has none waiting gets a place all the same, up to twice as many in all. A call waits no longer than "
    "its `timeout`."
)
_ON_LOSS = (
    "What happens to a task when the connection to its upstream, or the replica that runs it, is lost and "
    "the call cannot be resumed: `fail` it, or `retry` the call, up to twice on one replica; one that was "
    "made five times is given up when its replica is lost. Retry only what may run twice. The store keeps "
    "the request of such a task while it runs, sealed."
)
_REFUSE = (
    "Refuse calls without task metadata where the mode is `required`. Off: they run as plain calls, but "
    "not in sessions of protocol 2025-11-25, which are told that the tool is called as a task only."
)
_INLINE = (
    "For clients that leave the choice to the gateway (extension tasks): a call that ends this fast is "
    "answered at once, the rest become tasks. Where the mode is `required` or a `max_concurrent` is set, "
    "all are tasks from the beginning."
)
_WORDS = (
    "Text that hosts may give to the model while the task runs (protocol 2025-11-25, "
    "`model-immediate-response`)."
)


class KeepAliveConfig(Slice):
    """How long a task is kept. In a rule, what is left out is as in `tasks`."""

    default: Annotated[int, DURATION] = Field(
        default=read_duration("1h"),
        description="Retention when the client asks for none; never more than `max`. `keepAlive` of "
        "SEP-1686 is counted from the end of the task; `ttl` of protocol 2025-11-25 and `ttlMs` of "
        "2026-07-28 are counted from its creation, and are never less than `timeout`.",
    )
    max: Annotated[int | None, FOREVER] = Field(
        default=read_duration("24h"), description="The longest retention that a client gets."
    )


class RuleConfig(Slice):
    """What holds for one tool pattern or method. What is left out is as in `tasks`."""

    mode: Mode | None = Field(default=None, description="As `default`. A rule may be this word alone.")
    keep_alive: KeepAliveConfig | None = Field(default=None, description="How long a task is kept.")
    poll_interval: Annotated[int | None, DURATION] = Field(default=None, description=_POLL)
    timeout: Annotated[int | None, DURATION] = Field(default=None, description=_TIMEOUT)
    max_concurrent: Annotated[int | None, CONCURRENT] = Field(default=None, description=_CONCURRENT)
    max_concurrent_per_scope: Annotated[int | None, CONCURRENT] = Field(
        default=None, description=_PER_SCOPE
    )
    max_queued: Annotated[int | None, count()] = Field(default=None, description=_QUEUED)
    on_loss: OnLoss | None = Field(default=None, description=_ON_LOSS)
    refuse_plain: bool | None = Field(default=None, description=_REFUSE)
    inline_within: Annotated[int | None, duration("0s")] = Field(default=None, description=_INLINE)
    immediate_response: str | None = Field(default=None, description=_WORDS)

    @model_validator(mode="before")
    @classmethod
    def _word_alone(cls, value: Any) -> Any:
        return {"mode": value} if isinstance(value, str) else value


class TasksConfig(Slice):
    """What an upstream's requests may do as tasks."""

    default: Mode = Field(
        default="optional",
        description="For tools that no rule names. " + MODE,
    )
    keep_alive: KeepAliveConfig = Field(default=KeepAliveConfig(), description="How long a task is kept.")
    poll_interval: Annotated[int, DURATION] = Field(default=read_duration("2s"), description=_POLL)
    timeout: Annotated[int, DURATION] = Field(default=read_duration("2h"), description=_TIMEOUT)
    max_concurrent: Annotated[int | None, CONCURRENT] = Field(default=None, description=_CONCURRENT)
    max_concurrent_per_scope: Annotated[int | None, CONCURRENT] = Field(
        default=None, description=_PER_SCOPE
    )
    max_queued: Annotated[int, count()] = Field(default=1000, description=_QUEUED)
    on_loss: OnLoss = Field(default="fail", description=_ON_LOSS)
    refuse_plain: bool = Field(default=False, description=_REFUSE)
    tools: dict[str, RuleConfig] = Field(
        default={},
        description="Rules for tools by shell-style pattern (`*`, `?`, `[abc]`); the first match holds.",
    )
    methods: dict[str, RuleConfig] = Field(
        default={},
        description="Rules for other requests by method, such as `resources/read`; methods that are not "
        "named are `forbidden`.",
    )
    inline_within: Annotated[int, duration("0s")] = Field(default=read_duration("2s"), description=_INLINE)
    immediate_response: str | None = Field(default=None, description=_WORDS)
    tool_errors: Literal["failed", "completed"] = Field(
        default="failed",
        description="How a task whose tool reported an error (`isError`) is shown to clients of protocol "
        "2025-11-25. `failed` is what the protocol says; `completed` is for clients that do not fetch the "
        "result of a task that failed.",
    )


class UpstreamConfig(Slice):
    """One MCP server: `url` or `command`, and how to reach it."""

    url: SecretStr | None = Field(
        default=None, description="Address of a server that is reached over HTTP. May hold `${ENV_NAME}`."
    )
    command: tuple[str, ...] | None = Field(
        default=None,
        description="Program and arguments of a server that is started as a child and speaks stdio.",
    )
    transport: Literal["auto", "streamable-http", "sse"] = Field(
        default="auto",
        description="How to speak to `url`. `auto` begins with Streamable HTTP and falls back to HTTP+SSE.",
    )
    era: Literal["auto", "handshake", "stateless"] = Field(
        default="auto",
        description="Which era of the protocol the server is spoken to in for stateless clients. `auto` "
        "asks it once, and takes the stateless one where it has both. `handshake` is for a server of both "
        "eras whose tools ask their client for input in the old way.",
    )
    headers: dict[HeaderName, HeaderValue] = Field(
        default={}, description="Headers that are sent to `url`. May hold `${ENV_NAME}`."
    )
    headers_file: Path | None = Field(
        default=None, description="File with more headers, one `Name: value` a line."
    )
    verify_tls: bool = Field(default=True, description="Whether the certificate of `url` is checked.")
    ca_file: Path | None = Field(
        default=None, description="Certificates (PEM) to check `url` with, in place of the system's."
    )
    env: dict[str, SecretStr] = Field(
        default={}, description="Environment variables of `command`. May hold `${ENV_NAME}`."
    )
    cwd: Path | None = Field(default=None, description="Folder that `command` is started in.")
    connect_timeout: Annotated[int, DURATION] = Field(
        default=read_duration("10s"), description="How long a connection to `url` may take."
    )
    start_timeout: Annotated[int, DURATION] = Field(
        default=read_duration("30s"), description="How long `command` may take to answer `initialize`."
    )
    max_links: Annotated[int, count()] = Field(
        default=100,
        description="Children of `command`, or HTTP+SSE connections, at the same time on one replica.",
    )
    idle: Annotated[int, duration("1s")] = Field(
        default=read_duration("1h"),
        description="How long a session that nobody uses keeps its child or connection.",
    )
    max_connections: Annotated[int, count()] = Field(
        default=1000,
        description="Connections of one replica to `url` at the same time. A task holds one while it runs, "
        "and so does every call that is not answered yet; GET streams are bounded by `limits.sessions`. "
        "As many wait for one, at least 100, for up to `connect_timeout`; beyond it requests are answered "
        "503 with `Retry-After`.",
    )
    max_sessions: Annotated[int, count()] = Field(
        default=1000,
        description="Sessions that one replica holds with `url` for clients of the stateless era.",
    )
    answer_within: Annotated[int, DURATION] = Field(
        default=read_duration("10m"),
        description="How long a plain call of the stateless era waits for the client to come back with the "
        "input it was asked for; then it is given up.",
    )
    scope: Literal["principal", "shared"] = Field(
        default="principal",
        description="Who may see a task. `principal`: who made it. `shared`: everybody who reaches this "
        "upstream, for one trusted user.",
    )
    tasks: TasksConfig = Field(default=TasksConfig(), description="What may run as a task, and how.")
