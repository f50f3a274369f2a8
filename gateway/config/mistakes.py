"""A mistake in the configuration, and where it is: the lines that `ConfigError` carries."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_core import ErrorDetails

from gateway.config.model import Config
from gateway.config.shape import Place, as_model, at, sections, spell
from gateway.config.units import quote

_SECRET_SECTIONS = ("headers", "env")
_SECRET_NAMES = ("password", "secret", "url")


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    `about` names the places it was concluded from; `line` and `source` tell where it stands when the
    place does not.
    """

    place: Place
    words: str
    about: tuple[Place, ...] = ()
    line: int | None = None
    source: str | None = None


@dataclass
class Origin:
    """Where values came from: the file, the line of each place, the variable of each override."""

    file: str | None = None
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])
    variables: Mapping[Place, str] = field(default_factory=dict[Place, str])

    def line(self, place: Place) -> int | None:
        """Return the line of a place, or of the nearest one around it."""
        for length in range(len(place), -1, -1):
            if (found := self.lines.get(place[:length])) is not None:
                return found
        return None

    def _source(self, mistake: Mistake) -> tuple[str, int]:
        if mistake.source is not None:
            return mistake.source, 0
        for length in range(len(mistake.place), 0, -1):
            if (variable := self.variables.get(mistake.place[:length])) is not None:
                return variable, 0
        if self.file is None:
            return "configuration", 0
        return self.file, mistake.line or self.line(mistake.place) or 1

    def render(self, mistakes: Iterable[Mistake]) -> list[str]:
        """Return one line of text for each mistake, in the order of the file, none twice."""
        found: dict[str, int] = {}
        for mistake in mistakes:
            source, line = self._source(mistake)
            where = f"{source}:{line}" if line else source
            name = spell(mistake.place)
            found[f"{where}: {name}: {mistake.words}" if name else f"{where}: {mistake.words}"] = line
        return sorted(found, key=lambda text: found[text])


def _squeeze(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def nearest(name: str, choices: Sequence[str]) -> str | None:
    """Return the choice that was most likely meant, `None` where nothing is near."""
    squeezed = {_squeeze(choice): choice for choice in choices}
    found = difflib.get_close_matches(_squeeze(name), squeezed, n=1, cutoff=0.65)
    return squeezed[found[0]] if found else None


def _shared(home: Sequence[str], place: Sequence[str | int]) -> int:
    """Return how many steps from the top two places share; `*` stands for any name."""
    pairs = zip(home, place, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] in ("*", str(pair[1])), pairs)))


def _unknown(place: Place) -> str:
    """Return the words for a key that is not an option."""
    *above, name = place
    model = as_model(at(Config, tuple(above)))
    choices = sorted(model.model_fields) if model else []
    near = nearest(str(name), choices)
    if near is not None and _squeeze(near) == _squeeze(str(name)):
        return f'there is no such option; did you mean "{near}"?'
    homes = {
        where: option
        for where, section in sections(Config)
        for option in section.model_fields
        if _squeeze(option) == _squeeze(str(name))
    }
    if homes:
        home = max(homes, key=lambda where: (_shared(where.split("."), above), -len(where)))
        return f"there is no such option here; there is {home}{'.' if home else ''}{homes[home]}"
    if near is not None:
        return f'there is no such option; did you mean "{near}"?'
    return f"there is no such option; there are {', '.join(choices)}"


def _secret(place: Place) -> bool:
    return (
        any(key in _SECRET_SECTIONS for key in place) or place[-1] in _SECRET_NAMES or place[0] == "plugins"
    )


def _choice(error: ErrorDetails) -> str:
    expected = str(error.get("ctx", {}).get("expected", ""))
    choices = [word.strip().strip("'") for word in expected.replace(" or ", ", ").split(",")]
    given = error["input"]
    words = f"{quote(given)} is not one of {', '.join(choices)}"
    near = nearest(given, choices) if isinstance(given, str) else None
    return words if near is None else f'{words}; did you mean "{near}"?'


_TYPES = {
    "missing": "is missing",
    "string_type": 'must be text; put it in quotes: "..."',
    "path_type": "must be a path",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list; write it like [a, b]",
    "list_type": "must be a list; write it like [a, b]",
    "dict_type": "must be a mapping; write it like {name: value}",
    "model_type": "must be a mapping; write it like {option: value}",
    "string_too_short": "must not be empty",
    "string_too_long": "is too long",
    "string_pattern_mismatch": "may hold only letters, digits and : . _ -",
}


def from_pydantic(error: ErrorDetails) -> Mistake:
    """Return the mistake that a validation error tells of, in the words of this program."""
    place: Place = tuple(key for key in error["loc"] if key != "[key]")
    kind = error["type"]
    if kind == "extra_forbidden":
        return Mistake(place, _unknown(place))
    if kind == "value_error":
        return Mistake(place, str(error.get("ctx", {}).get("error", error["msg"])))
    if kind == "literal_error" and not _secret(place):
        return Mistake(place, _choice(error))
    words = _TYPES.get(kind, "is not right: " + error["msg"])
    if kind in ("dict_type", "model_type") and isinstance(error["input"], str) and not _secret(place):
        words = f"{quote(error['input'])} {words}"
    return Mistake(place, words)
