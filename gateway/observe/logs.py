"""Log lines on stderr: one JSON object each, or plain text; and one line for each event of a task.

What must not be logged cannot be: an event of a task takes the fields of `TaskFields` and no others,
and none of them is an argument, a result or a credential.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypedDict, Unpack

import msgspec

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "text"]
TaskEvent = Literal[
    "created",
    "started",
    "input_required",
    "answered",
    "finished",
    "fetched",
    "deleted",
    "expired",
    "refused",
    "taken_over",
]

_LINES: Final = 256
_PIECE: Final = 4_096
MAX_TEXT: Final = 2_048
_FIELDS: Final = "task_fields"


class TaskFields(TypedDict, total=False):
    """What a line about a task may say.

    `scope` is the scope's hash and `session` the session's tag; `reason` is in the gateway's own words.
    """

    task_id: str
    upstream: str
    scope: str
    session: str | None
    dialect: str
    method: str
    tool: str | None
    status: str
    is_error: bool
    reason: str | None
    seconds: float | None
    request_id: str


_KNOWN: Final = frozenset(TaskFields.__annotations__)


class TaskLog:
    """Writes one line for each event of a task."""

    def __init__(self) -> None:
        self._log = logging.getLogger("gateway.task")

    def event(self, name: TaskEvent, **fields: Unpack[TaskFields]) -> None:
        """Write that something happened to a task; fields of `None` and unknown fields are left out."""
        if self._log.isEnabledFor(logging.INFO):
            said = {"event": name} | {
                key: _bounded(value) for key, value in fields.items() if value is not None and key in _KNOWN
            }
            # The record is made here: `Logger.info` would walk the stack for a caller nobody prints.
            record = logging.LogRecord(self._log.name, logging.INFO, "", 0, f"task {name}", None, None)
            record.__dict__[_FIELDS] = said
            self._log.handle(record)


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bounded(value: Any) -> Any:
    return value[:MAX_TEXT] + "..." if isinstance(value, str) and len(value) > MAX_TEXT else value


def _ascii(line: dict[str, Any]) -> str:
    try:
        encoded = msgspec.json.encode(line, enc_hook=str)
    except UnicodeEncodeError:
        encoded = b"\xff"
    return encoded.decode() if encoded.isascii() else json.dumps(line, separators=(",", ":"), default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, _FIELDS, {})


class JsonLines(logging.Formatter):
    """One JSON object a line, in ASCII: whatever a client sends cannot break a line or a terminal."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": _bounded(record.getMessage()),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _ascii(line)


class TextLines(logging.Formatter):
    """A line for people: time, level, logger, message, then the fields as `name=value`."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = [] if worker is None else [f"worker={worker}"]

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; a traceback follows on lines of its own."""
        message = _bounded(record.getMessage())
        shown = message if message.isprintable() else json.dumps(message)
        parts = [_time(record), record.levelname, record.name, shown, *self._worker]
        parts += [f"{key}={json.dumps(value, default=str)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Stderr(logging.StreamHandler[Any]):
    """The one handler that `configure` sets: what one turn of the event loop says is written at once."""

    def __init__(self, worker: int | None) -> None:
        super().__init__(sys.stderr)
        self.worker = worker
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line of a record until the turn is over; warnings and worse are written now."""
        try:
            self._lines.append(self.format(record))
            loop = asyncio.get_running_loop() if record.levelno < logging.WARNING else None
        except RuntimeError:
            loop = None
        except Exception:  # noqa: BLE001 as every handler does: a line that cannot be made ends nobody
            self.handleError(record)
            return
        if loop is None or len(self._lines) >= _LINES:
            self.flush()
        elif len(self._lines) == 1:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is kept; a reader that is gone is no reason to fail."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            with suppress(OSError, ValueError):
                for part in whole_lines(lines):
                    self.stream.write(part)
                    self.stream.flush()


def whole_lines(lines: list[str]) -> Iterator[str]:
    """Yield whole lines, as many as a pipe takes in one piece (`PIPE_BUF`): workers share one."""
    part, size = list[str](), 0
    for line in lines:
        if part and size + len(line) >= _PIECE:
            yield "\n".join(part) + "\n"
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield "\n".join(part) + "\n"


def configure(level: Level, form: Format, worker: int | None = None) -> None:
    """Send all logging of the process to stderr in one form; calling again replaces the earlier choice.

    `worker` is the number that each line carries where several processes write to one stderr; left out,
    it is the one of before.
    """
    root = logging.getLogger()
    before = [known for known in root.handlers if isinstance(known, _Stderr)]
    if worker is None and before:
        worker = before[0].worker
    handler = _Stderr(worker)
    handler.setFormatter(JsonLines(worker) if form == "json" else TextLines(worker))
    for old in before:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # No line shows these, and finding them out costs a third of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Each request is counted; a line for each would say nothing more.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
