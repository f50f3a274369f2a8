"""What happened in a run, as plain records: all that the checker may know.

Times are seconds of this machine's clock (`time.time`), which the upstreams' logs share. A record goes to
JSON and back, so that a history can be kept and judged again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Op: TypeAlias = Literal[
    "open", "create", "stream", "get", "result", "cancel", "delete", "list", "answer", "foreign", "plain"
]
# task: a task is announced; result: the payload of the call; status: the state of a task; ok: done as
# asked; error: a JSON-RPC or HTTP error; lost: the connection broke; left: the client went on purpose;
# late: no answer in the client's time.
Came: TypeAlias = Literal["task", "result", "status", "ok", "error", "lost", "left", "late"]
EVERYTHING: Final = "*"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What was agreed for the run, in seconds: a task ends within `timeout + lease + slack`."""

    lease: float
    timeout: float
    slack: float
    retry_prefix: str = "retry_"
    retries: int = 2


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request of a client and what came of it.

    `nonce` names the call that the request is about; `got_nonce` and `got_scope` are those of the payload
    that came, `kept` the announced retention in seconds from the creation (`kept_from_end`: from the end).
    """

    client: str
    scope: str
    dialect: str
    op: Op
    upstream: str
    tool: str
    nonce: str
    task_id: str = ""
    sent: float
    answered: float
    came: Came
    status: str = ""
    http: int = 0
    code: int = 0
    words: str = ""
    got_nonce: str = ""
    got_scope: str = ""
    kept: float | None = None
    kept_from_end: bool = False
    replica: str = ""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that was broken, from when to when, and whose calls it may have touched."""

    name: str
    target: str
    begun: float
    over: float
    touches: tuple[str, ...] = (EVERYTHING,)
    wipes: bool = False
    """Whether the memory of Redis went with it."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A line of an upstream's own log: `begin`, `end`, `cancelled`, `asked` or `answered` of one call."""

    at: float
    upstream: str
    pid: int
    event: str
    nonce: str
    scope: str
    tool: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """What was found after the run and should not be there."""

    what: Literal["key", "process", "traceback", "memory", "files", "exit"]
    where: str
    words: str


@dataclass
class History:
    """All records of a run."""

    terms: Terms
    asked: list[Asked] = field(default_factory=list[Asked])
    faults: list[Fault] = field(default_factory=list[Fault])
    ran: list[Ran] = field(default_factory=list[Ran])
    left: list[Left] = field(default_factory=list[Left])

    def with_more(self, *records: Asked | Fault | Ran | Left) -> History:
        """Return a history that has these records too."""
        return replace(
            self,
            asked=[*self.asked, *(one for one in records if isinstance(one, Asked))],
            faults=[*self.faults, *(one for one in records if isinstance(one, Fault))],
            ran=[*self.ran, *(one for one in records if isinstance(one, Ran))],
            left=[*self.left, *(one for one in records if isinstance(one, Left))],
        )


_KINDS: Final[dict[str, type[Terms | Asked | Fault | Ran | Left]]] = {
    kind.__name__: kind for kind in (Terms, Asked, Fault, Ran, Left)
}


def write(history: History, file: Path) -> None:
    """Write a history, one record a line."""
    asked = sorted(history.asked, key=lambda one: one.sent)
    records: Iterable[Terms | Asked | Fault | Ran | Left] = (
        history.terms,
        *asked,
        *history.faults,
        *history.ran,
        *history.left,
    )
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"kind": type(one).__name__, **asdict(one)}) + "\n" for one in records)


def read(file: Path) -> History:
    """Read what `write` has written."""
    found: list[Asked | Fault | Ran | Left] = []
    terms: Terms | None = None
    for line in file.read_text(encoding="utf-8").splitlines():
        fields: dict[str, Any] = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        if kind is Fault:
            fields["touches"] = tuple(fields["touches"])
        record = kind(**fields)
        if isinstance(record, Terms):
            terms = record
        else:
            found.append(record)
    if terms is None:
        raise ValueError(f"{file} does not say what was agreed")
    return History(terms).with_more(*found)


def read_log(file: Path) -> list[Ran]:
    """Read the log of an upstream; the last line may be half."""
    found: list[Ran] = []
    lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    for line in lines[:-1]:
        fields: dict[str, Any] = json.loads(line)
        if fields["event"] != "start":
            found.append(Ran(**fields))
    return found
