"""From file and environment to a frozen `Config`, or to one `ConfigError` that names every mistake.

Only the command line imports this: everybody else is handed slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gateway.config import checks
from gateway.config.document import Document, read_document
from gateway.config.environment import apply, interpolate, read_overrides, stray_variables
from gateway.config.files import read_files
from gateway.config.mistakes import Mistake, Origin, from_pydantic
from gateway.config.model import Config
from gateway.config.shape import Place, as_dict
from gateway.protocol.errors import ConfigError

Look = Callable[[Config], Iterable[tuple[Place, str]]]

INLINE_NAME: Final = "wrapped"
DEMO_NAME: Final = "demo"
_ROUNDS: Final = 50


def load(path: Path | None, env: Mapping[str, str], look: Look | None = None) -> Config:
    """Return the configuration of a file, overridden by the environment.

    `look` yields what is wrong beyond what this room can know (plugins), as place and words.
    Raises `ConfigError` whose message has a line for each mistake:
    `gateway.yaml:12: upstreams.reports.tasks.timeout: "1x" is not a duration; ...`.
    """
    if path is None:
        return _build(Document(), None, Path.cwd(), env, look)
    return _build(read_document(path), str(path), path.parent.absolute(), env, look)


def load_inline(command: Sequence[str], env: Mapping[str, str]) -> Config:
    """Return the configuration that wraps one stdio server, overridden by the environment.

    The upstream is called `wrapped`; there is no admin port. Raises `ConfigError`.
    """
    tree: dict[str, Any] = {"admin": "off", "upstreams": {INLINE_NAME: {"command": list(command)}}}
    if "GATEWAY_ADMIN__PORT" in env or "GATEWAY_ADMIN__HOST" in env:
        del tree["admin"]
    return _build(Document(tree), None, Path.cwd(), env)


def load_demo(command: Sequence[str], env: Mapping[str, str]) -> Config:
    """Return the configuration that serves one stdio server as `demo`, overridden by the environment.

    It stands for the servers that nobody has to change, so that it is spoken to as one of those.
    """
    tree: dict[str, Any] = {"upstreams": {DEMO_NAME: {"command": list(command), "era": "handshake"}}}
    return _build(Document(tree), None, Path.cwd(), env)


def warnings(config: Config, env: Mapping[str, str]) -> list[str]:
    """Return what is allowed but may not be meant, one line each."""
    return [*checks.warnings(config), *stray_variables(env)]


def _build(
    document: Document, name: str | None, folder: Path, env: Mapping[str, str], look: Look | None = None
) -> Config:
    tree = document.tree
    overrides = read_overrides(env, tree)
    mistakes = [*document.mistakes, *interpolate(tree, env, overrides.values)]
    apply(overrides, tree)
    mistakes += [*overrides.mistakes, *read_files(tree, folder, overrides.values)]
    config, wrong = _validate(tree)
    unread = {mistake.place for mistake in mistakes}
    mistakes += [mistake for mistake in wrong if mistake.place not in unread]
    broken = [mistake.place for mistake in mistakes]
    mistakes += [found for found in checks.check(config, env) if not _spoilt(found, broken)]
    if look is not None:
        mistakes += [Mistake(place, words) for place, words in look(config)]
    if mistakes:
        raise ConfigError("\n".join(Origin(name, document.lines, overrides.variables).render(mistakes)))
    return config


def _validate(tree: dict[str, Any]) -> tuple[Config, list[Mistake]]:
    """Return the configuration with every wrong value left out, and what was wrong.

    Leaving out and trying again lets the checks across values see the rest in the same run.
    """
    mistakes: list[Mistake] = []
    for _ in range(_ROUNDS):
        try:
            return Config.model_validate(tree), mistakes
        except ValidationError as error:
            found = [from_pydantic(details) for details in error.errors(include_url=False)]
        mistakes += [m for m in found if not _spoilt(m, [old.place for old in mistakes])]
        for mistake in sorted(found, key=lambda m: len(m.place), reverse=True):
            _leave_out(tree, mistake.place)
    return Config(), mistakes


def _leave_out(tree: dict[str, Any], place: Place) -> None:
    """Take the value at a place out of the tree; where it is not there, or in a list, what is around it."""
    for length in range(len(place), 0, -1):
        here: dict[str, Any] | None = tree
        for key in place[: length - 1]:
            here = as_dict(here.get(str(key))) if here is not None else None
        if here is not None and place[length - 1] in here:
            del here[str(place[length - 1])]
            return


def _spoilt(mistake: Mistake, broken: Iterable[Place]) -> bool:
    """Tell whether a mistake may only be there because another value was left out."""
    about = mistake.about or (mistake.place,)
    return any(place[: len(part)] == part for place in broken for part in about)
