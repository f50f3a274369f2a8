"""Vectors of the newer dialects and of the bridge: traces of messages, read from files and compared.

`<any>` stands for anything. `<$name>` stands for what a message shows there for the first time, and for
the same again wherever it comes later; as a member's name too. An object with the member `<more>` may
have others. Times are compared as points in time, however they are spelt (RFC 3339).
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from tests.cold.playbook import ANY, VECTORS

MORE: Final = "<more>"
_NAME: Final = re.compile(r"<\$\w+>")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
Known = dict[str, Any]


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that come in from one side at once, and all that goes out for them, in order.

    `headers` are those of the HTTP request; without them the message came on a pipe.
    """

    sender: Literal["client", "upstream"] = msgspec.field(name="from")
    message: Any = msgspec.field(name="in")
    out: list[dict[str, Any]]
    headers: dict[str, str] | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A trace under a name that says what it shows; `given` is what is there before it."""

    name: str
    steps: list[Step]
    given: dict[str, Any] = {}


class Vector(msgspec.Struct, forbid_unknown_fields=True):
    """A section of a text, what it asks in a line of English, and the traces that show it."""

    rule: str
    says: str
    cases: list[Case]


def read(path: Path) -> Vector:
    """Return the vector of a file."""
    return msgspec.json.decode(path.read_bytes(), type=Vector)


def files(letter: str) -> list[Path]:
    """Return the vectors of a dialect, or of the bridge, by the letter that their names begin with."""
    return sorted(VECTORS.glob(f"{letter}_*.json"))


def cases(letter: str) -> list[tuple[str, Case]]:
    """Return all traces of such vectors, each with a name that leads back to its file."""
    return [(f"{path.stem}: {case.name}", case) for path in files(letter) for case in read(path).cases]


def slug(rule: str) -> str:
    """Return the name of a section as the name of a file has it."""
    return re.sub(r"[^a-z0-9]+", "_", rule.lower()).strip("_")


def filled(message: Any, known: Known) -> Any:
    """Return a message with what earlier ones have shown in place of the names for it."""
    if isinstance(message, str):
        return known.get(message, message)
    if isinstance(message, list):
        return [filled(part, known) for part in cast("list[Any]", message)]
    if isinstance(message, dict):
        parts = cast("dict[str, Any]", message)
        return {known.get(name, name): filled(part, known) for name, part in parts.items()}
    return message


def alike(wanted: Any, found: Any, known: Known) -> bool:
    """Tell whether a message is the one that is wanted, and note in `known` what it shows."""
    if isinstance(wanted, str):
        return _alike_text(wanted, found, known)
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, dict):
        return _alike_members(cast("dict[str, Any]", wanted), dict(cast("dict[str, Any]", found)), known)
    if isinstance(wanted, list):
        ours, theirs = cast("list[Any]", wanted), cast("list[Any]", found)
        return len(ours) == len(theirs) and all(
            alike(one, other, known) for one, other in zip(ours, theirs, strict=True)
        )
    return bool(wanted == found)


def _alike_text(wanted: str, found: Any, known: Known) -> bool:
    if wanted == ANY:
        return True
    if _NAME.fullmatch(wanted):
        return bool(known.setdefault(wanted, found) == found)
    if _TIME.fullmatch(wanted) and isinstance(found, str) and _TIME.fullmatch(found):
        return _moment(wanted) == _moment(found)
    return bool(wanted == found)


def _alike_members(wanted: dict[str, Any], found: dict[str, Any], known: Known) -> bool:
    for name, part in wanted.items():
        if name == MORE:
            continue
        literal = known.get(name, name)
        if _NAME.fullmatch(literal):
            literal = next((key for key in found if key not in wanted and key not in known.values()), name)
            known[name] = literal
        if literal not in found or not alike(part, found.pop(literal), known):
            return False
    # Errors may carry data that a text does not name.
    return MORE in wanted or not found or (set(found) == {"data"} and "code" in wanted)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
