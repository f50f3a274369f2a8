"""The command `mcp-task-gateway`: serve, stdio, check, schema, call, tasks."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from gateway import __version__
from gateway.app import House
from gateway.client import cli as client
from gateway.config.kinds import WORKERS
from gateway.config.load import DEMO_NAME, load, load_demo, load_inline, warnings
from gateway.config.model import Config
from gateway.config.schema import json_schema
from gateway.doors import HttpFront
from gateway.observe.logs import configure
from gateway.protocol.errors import ConfigError, GatewayError, PluginError
from gateway.slices import plugin_mistakes
from gateway.workers.number import number_of, worker_mistakes
from gateway.workers.supervisor import supervise
from gateway.wrap import wrap

WRONG: Final = 2
_log: Final = logging.getLogger("gateway")
INTERRUPTED: Final = 130
_SIGNALS: Final = (
    "SIGTERM stops after drain_delay and drain, Ctrl-C without the delay; another cuts the wait short. "
    "SIGHUP reads the file anew."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 good, 1 failed, 2 wrong configuration or usage."""
    args = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except (ConfigError, PluginError) as wrong:
        _complain(str(wrong))
        return WRONG
    except (GatewayError, OSError) as wrong:
        _complain(f"mcp-task-gateway: {wrong}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcp-task-gateway", description="Tasks for MCP servers that nobody has to change."
    )
    parser.add_argument("--version", action="version", version=f"mcp-task-gateway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve upstreams over HTTP", epilog=_SIGNALS)
    which = serve.add_mutually_exclusive_group(required=True)
    which.add_argument("-c", "--config", type=Path, help="the YAML file")
    which.add_argument("--demo", action="store_true", help="serve the demo server, nothing to configure")
    words = "processes on the one port, auto for one on each core; more than one share a Redis (store.url)"
    serve.add_argument("--workers", type=_workers, metavar="N", help=words)
    serve.set_defaults(command=_serve)
    stdio = commands.add_parser("stdio", help="wrap one stdio server for the host that starts this")
    stdio.add_argument(
        "server", nargs="+", metavar="COMMAND", help="the server and its arguments, after --"
    )
    stdio.set_defaults(command=_stdio)
    check = commands.add_parser("check", help="look for mistakes in a configuration")
    check.add_argument("-c", "--config", type=Path, required=True, help="the YAML file")
    check.set_defaults(command=_check)
    schema = commands.add_parser("schema", help="print the JSON Schema of the configuration, for editors")
    schema.set_defaults(command=_schema)
    parser.set_defaults(command=client.run)
    client.add_parsers(commands)
    return parser


def _serve(args: argparse.Namespace) -> int:
    config = _load_served(args)
    number = number_of(config, args.workers)
    # A demo has no file; a terminal that is closed ends it.
    load_anew = None if args.demo else partial(_load_served, args)
    configure(config.log.level, config.log.format)
    if number > 1:
        supervise(config, number, load_anew, partial(_announce, config))
    else:
        uvloop.run(_serve_http(config, load_anew))
    return 0


def _workers(text: str) -> int:
    """Return the number that was written, 0 for `auto`; raise `ArgumentTypeError`, as argparse wants it."""
    try:
        return WORKERS.read(int(text) if text.isdecimal() else text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


def _load_served(args: argparse.Namespace) -> Config:
    """Return the configuration that is to be served; raise `ConfigError`."""
    if not args.demo:
        return _load(args)
    config = load_demo([sys.executable, "-m", "gateway.demo"], os.environ)
    for _, words in worker_mistakes(config, args.workers):
        raise ConfigError(words)
    return config


def _stdio(args: argparse.Namespace) -> int:
    config = load_inline(args.server, os.environ)
    configure(config.log.level, config.log.format)
    return uvloop.run(_serve_pipe(config))


def _check(args: argparse.Namespace) -> int:
    config = _load(args)
    House(config)
    number = len(config.upstreams)
    _say(f"{args.config}: good; {number} upstream{'s' * (number != 1)}: {', '.join(config.upstreams)}")
    return 0


def _schema(args: argparse.Namespace) -> int:
    del args
    _say(json.dumps(json_schema(), indent=2))
    return 0


def _load(args: argparse.Namespace) -> Config:
    def look(config: Config) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from plugin_mistakes(config)
        yield from worker_mistakes(config, getattr(args, "workers", None))

    config = load(args.config, os.environ, look)
    for warning in warnings(config, os.environ):
        _complain(f"warning: {warning}")
    return config


def _settle_memory() -> None:
    """Let the collector look seldom: what was imported stays, and most of what comes dies by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def _serve_http(config: Config, load_anew: Callable[[], Config] | None) -> None:
    stop, asked = _stop_event(), asyncio.Event()
    if load_anew is not None:
        # Heard from the start: a house that still waits for its store must not die of it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    house = House(config)
    _settle_memory()
    front = HttpFront(house)
    try:
        await front.open_admin()
        if not await _unless(stop, house, house.start()):
            return
        await front.open()
        _log.info(
            "serving %s on port %d, replica %s", ", ".join(config.upstreams), front.port, house.replica
        )
        _announce(config, front.port, front.admin_port)
        if load_anew is not None:
            house.crew.keep(partial(_reload, asked, front, load_anew), "reload")
        await stop.wait()
        stop.clear()
        # A second signal ends the patience.
        if not stop.hasty:
            await _unless(stop, house, front.leave())
            stop.clear()
        await _unless(stop, house, front.close())
    finally:
        await house.stop()
        await front.shut()


async def _reload(asked: asyncio.Event, front: HttpFront, load_anew: Callable[[], Config]) -> None:
    """Read the configuration anew each time that is asked for; those who ask meanwhile are one."""
    while True:
        await asked.wait()
        asked.clear()
        front.reload(load_anew)


async def _serve_pipe(config: Config) -> int:
    stop = _stop_event()
    house = House(config, in_place=True)
    front = HttpFront(house)
    try:
        await front.open_admin()
        if not await _unless(stop, house, house.start()):
            return 0
        front.serving = True
        return await wrap(house, stop)
    finally:
        await house.stop()
        await front.shut()


async def _unless(stop: asyncio.Event, house: House, work: Coroutine[Any, Any, None]) -> bool:
    """Do `work` unless a signal comes first; tell whether it was done, raise what it raised."""
    doing = house.crew.spawn(work, "serve")
    waiting = house.crew.spawn(stop.wait(), "signal")
    await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not doing.done():
        doing.cancel()
        return False
    await doing
    return True


class _Stop(asyncio.Event):
    """Set by a signal; `hasty` where it was that of a person at the keyboard."""

    hasty = False

    def hurry(self) -> None:
        """Take note of an interrupt."""
        self.hasty = True
        self.set()


def _stop_event() -> _Stop:
    stop = _Stop()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.hurry)
    return stop


def _announce(config: Config, port: int, admin_port: int | None) -> None:
    host = f"[{config.listen.host}]" if ":" in config.listen.host else config.listen.host
    if config.store.url.get_secret_value().startswith("memory:"):
        _say("Store: memory:// (in this process: a restart loses all tasks, and replicas share nothing)")
    for name in config.upstreams:
        url = f"http://{host}:{port}/{name}/mcp"
        _say(f"Serving {name} at {url}")
        if name == DEMO_NAME:
            _say("Try:")
            _say(f"  {_command()} call {url} slow_count seconds=5 --task")
            _say(f"  {_command()} call {url} ask_name --task")
    if admin_port is not None and config.admin is not None:
        _say(f"Metrics and health at http://{config.admin.host}:{admin_port}/metrics /healthz /readyz")


def _command() -> str:
    path = Path(sys.argv[0])
    return os.path.relpath(path) if path.name == "mcp-task-gateway" else "python -m gateway"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")
