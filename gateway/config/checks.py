"""Mistakes that no single value shows: options that contradict each other or the machine."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from gateway.config.mistakes import Mistake
from gateway.config.model import Config
from gateway.config.patterns import covers
from gateway.config.shape import Place
from gateway.config.units import quote, show_duration
from gateway.config.upstream import KeepAliveConfig, RuleConfig, TasksConfig, UpstreamConfig

STORE_SCHEMES: Final = (
    "memory",
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "unix",
)
_URL_ONLY: Final = ("transport", "headers", "headers_file", "verify_tls", "ca_file", "connect_timeout")
_COMMAND_ONLY: Final = ("env", "cwd", "start_timeout")
_MAX_PATTERN: Final = 200
_MAX_PATH: Final = 500


def check(config: Config, env: Mapping[str, str]) -> Iterator[Mistake]:
    """Yield every contradiction in a configuration."""
    if not config.upstreams:
        yield Mistake(("upstreams",), "there is none; name at least one MCP server with url or command")
    yield from _ports(config)
    yield from _store(config)
    for name, upstream in config.upstreams.items():
        place: Place = ("upstreams", name)
        yield from _upstream(upstream, place)
        if upstream.url is not None:
            yield from _http(upstream, place)
        if upstream.command is not None:
            yield from _command(upstream, place, env)
        yield from _tasks(upstream.tasks, (*place, "tasks"))


def warnings(config: Config) -> Iterator[str]:
    """Yield what is allowed but may not be meant."""
    if not is_loopback(config.listen.host):
        yield (
            f"listen.host {config.listen.host} can be reached from other machines; the gateway checks no "
            "credentials of its own"
        )
    if config.admin is not None and not is_loopback(config.admin.host):
        yield f"admin.host {config.admin.host} can be reached from other machines; metrics are open to all"
    for name, upstream in config.upstreams.items():
        if upstream.url is not None and not upstream.verify_tls:
            yield f"upstreams.{name}.verify_tls is off; anybody in between can read and change everything"
    if config.identity.header is not None:
        yield f"identity.header {config.identity.header} is trusted; the proxy in front must set it"


def is_loopback(host: str) -> bool:
    """Tell whether a host names this machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _ports(config: Config) -> Iterator[Mistake]:
    listen, admin = config.listen, config.admin
    if admin is None or listen.port == 0 or listen.port != admin.port:
        return
    wild = {"0.0.0.0", "::", ""}  # noqa: S104  compared, not bound
    if listen.host == admin.host or wild & {listen.host, admin.host}:
        about: tuple[Place, ...] = tuple(
            (side, key) for side in ("listen", "admin") for key in ("host", "port")
        )
        yield Mistake(
            ("admin", "port"), f"{admin.port} is also listen.port; give each a port of its own", about
        )


def _split(text: str) -> SplitResult | str:
    """Return the parts of a URL, or in words what is wrong with it; never the URL itself."""
    if any(c.isspace() or not c.isprintable() for c in text):
        return "the URL holds spaces or control characters"
    try:
        parts = urlsplit(text)
        # Sentinels and the nodes of a cluster are several.
        several = "+" in parts.scheme
        places = parts.netloc.rpartition("@")[2].split(",") if several else [parts.netloc]
        if any(urlsplit(f"//{place}").port == 0 for place in places):
            return "the port of the URL must be from 1 to 65535"
    except ValueError:
        return "the URL is malformed; check its host and port"
    return parts


def _like(scheme: str) -> str:
    where = "localhost:26379/mymaster" if scheme.endswith("+sentinel") else "localhost:6379"
    return f"{scheme}://{where}"


def _store(config: Config) -> Iterator[Mistake]:
    place: Place = ("store", "url")
    parts = _split(config.store.url.get_secret_value())
    if isinstance(parts, str):
        yield Mistake(place, parts)
    elif parts.scheme not in STORE_SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
        yield Mistake(place, f"the store must be one of {schemes}")
    elif parts.scheme == "unix" and not parts.path:
        yield Mistake(place, "the path of the socket is missing; write it like unix:///run/redis.sock")
    elif parts.scheme.startswith("redis") and not parts.netloc.rpartition("@")[2]:
        yield Mistake(place, f"the host is missing; write it like {_like(parts.scheme)}")
    elif parts.scheme.endswith("+sentinel") and not parts.path.strip("/"):
        yield Mistake(place, f"the service is missing; write it like {_like(parts.scheme)}")
    elif parts.scheme.endswith("+cluster") and parts.path.strip("/") not in ("", "0"):
        yield Mistake(place, "a cluster has no databases; leave the path away")
    elif parts.scheme == "memory" and config.store.password is not None:
        yield Mistake(("store", "password"), "a store in memory has no password", (("store",),))


def _upstream(upstream: UpstreamConfig, place: Place) -> Iterator[Mistake]:
    both: tuple[Place, ...] = ((*place, "url"), (*place, "command"))
    if upstream.cwd is not None and not upstream.cwd.is_dir():
        yield Mistake((*place, "cwd"), f"{quote(str(upstream.cwd), _MAX_PATH)} is not a folder")
    if (upstream.url is None) == (upstream.command is None):
        words = "give url or command, not both" if upstream.url else "give url or command"
        yield Mistake(place, words, both)
        return
    kind, other, wrong = (
        ("url", "command", _COMMAND_ONLY) if upstream.url is not None else ("command", "url", _URL_ONLY)
    )
    for key in wrong:
        if key in upstream.model_fields_set:
            yield Mistake((*place, key), f"goes with {other}; this upstream has {kind}", both)


def _http(upstream: UpstreamConfig, place: Place) -> Iterator[Mistake]:
    here: Place = (*place, "url")
    parts = _split(upstream.url.get_secret_value() if upstream.url else "")
    if isinstance(parts, str):
        yield Mistake(here, parts)
        return
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield Mistake(
            here, "must begin with http:// or https:// and name a host, like http://localhost:9000/mcp"
        )
    elif parts.username or parts.password:
        yield Mistake(here, "credentials do not belong into the URL; use headers: {Authorization: ...}")
    elif parts.fragment:
        yield Mistake(here, "a fragment (#...) means nothing to a server; take it away")
    if upstream.ca_file is not None:
        yield from _certificates(upstream.ca_file, (*place, "ca_file"))


def _certificates(path: Path, place: Place) -> Iterator[Mistake]:
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        yield Mistake(place, f"{quote(str(path), _MAX_PATH)} does not hold certificates in PEM form")
    except OSError as error:
        yield Mistake(place, f"{quote(str(path), _MAX_PATH)} cannot be read: {error.strerror}")


def _command(upstream: UpstreamConfig, place: Place, env: Mapping[str, str]) -> Iterator[Mistake]:
    here: Place = (*place, "command")
    command = upstream.command or ()
    if not command or not command[0]:
        yield Mistake(here, "is empty; write it like [npx, -y, some-server]")
        return
    if any("\0" in word for word in command):
        yield Mistake(here, "holds a NUL character")
        return
    if upstream.cwd is not None and not upstream.cwd.is_dir():
        return
    program = command[0]
    search = (
        upstream.env["PATH"].get_secret_value() if "PATH" in upstream.env else env.get("PATH", os.defpath)
    )
    about: tuple[Place, ...] = (here, (*place, "cwd"), (*place, "env"))
    if Path(program).name == program:
        if shutil.which(program, path=search) is None:
            yield Mistake(
                here, f"{quote(program)} is not found on PATH; install it or write its full path", about
            )
        return
    full = (upstream.cwd or Path.cwd()) / program
    if not full.is_file():
        yield Mistake(here, f"there is no file {quote(str(full), _MAX_PATH)}", about)
    elif not os.access(full, os.X_OK):
        yield Mistake(here, f"{quote(str(full), _MAX_PATH)} may not be executed; chmod +x it", about)


def _tasks(tasks: TasksConfig, place: Place) -> Iterator[Mistake]:
    yield from _keep_alive(tasks.keep_alive, None, (*place, "keep_alive"))
    for section, rules in (("tools", tasks.tools), ("methods", tasks.methods)):
        for name, rule in rules.items():
            here: Place = (*place, section, name)
            words = _pattern_words(name) if section == "tools" else _method_words(name)
            if words:
                yield Mistake(here, words)
            yield from _rule(rule, tasks, here)
    yield from _never(tasks, (*place, "tools"))


def _rule(rule: RuleConfig, tasks: TasksConfig, place: Place) -> Iterator[Mistake]:
    if rule.keep_alive is not None:
        yield from _keep_alive(rule.keep_alive, tasks.keep_alive, (*place, "keep_alive"))


def _keep_alive(given: KeepAliveConfig, above: KeepAliveConfig | None, place: Place) -> Iterator[Mistake]:
    """Yield the mistake of a written `default` that `max` cuts; an inherited one is just cut."""
    if "default" not in given.model_fields_set:
        return
    own = above is None or "max" in given.model_fields_set
    longest = given.max if own or above is None else above.max
    if longest is not None and given.default > longest:
        name = "keep_alive.max" if "max" in given.model_fields_set else "keep_alive.max that holds here"
        words = f"{show_duration(given.default)} is longer than the {name}, {show_duration(longest)}"
        about = (place,) if above is None else (place, (*place[:-3], "keep_alive"))
        yield Mistake((*place, "default"), words, about)


def _pattern_words(pattern: str) -> str | None:
    if not pattern:
        return "an empty pattern matches no tool"
    if pattern != pattern.strip():
        return f"{quote(pattern)} begins or ends with a space; no tool's name does"
    if not pattern.isprintable():
        return "the pattern holds control characters; no tool's name does"
    if len(pattern) > _MAX_PATTERN:
        return f"the pattern is longer than {_MAX_PATTERN} characters"
    return None


def _method_words(method: str) -> str | None:
    if method == "tools/call":
        return "tools are governed by default and tools"
    if any(c in method for c in "*?["):
        return "methods are named in full; patterns are for tools"
    if method.startswith(("tasks/", "notifications/")) or method in (
        "initialize",
        "ping",
        "server/discover",
    ):
        return f"{method} cannot run as a task"
    if not method or method != method.strip() or not method.isprintable():
        return f"{quote(method)} is not the name of a method"
    return None


def _never(tasks: TasksConfig, place: Place) -> Iterator[Mistake]:
    patterns = [pattern for pattern in tasks.tools if len(pattern) <= _MAX_PATTERN]
    for index, later in enumerate(patterns):
        for earlier in patterns[:index]:
            if covers(earlier, later):
                words = (
                    f"can never match: {quote(earlier)} stands before it and takes all of it; move it up"
                )
                yield Mistake((*place, later), words)
                break
