"""What the environment says: overrides such as `GATEWAY_STORE__URL`, and `${NAME}` inside values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from gateway.config.mistakes import Mistake, nearest
from gateway.config.model import Config
from gateway.config.shape import Place, as_dict, as_list, as_model, at, is_mapping, is_section, spell, step
from gateway.config.units import quote

PREFIX: Final = "GATEWAY_"
_NAME = re.compile(r"\$(\$?)\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Overrides:
    """What the environment sets: the value and the variable of each place, and what is wrong with it."""

    values: dict[Place, Any] = field(default_factory=dict[Place, Any])
    variables: dict[Place, str] = field(default_factory=dict[Place, str])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])


def read_overrides(env: Mapping[str, str], tree: dict[str, Any]) -> Overrides:
    """Return the overrides that the environment holds for a tree of values.

    Names the operator chose (of upstreams, patterns) are found whatever their case, with `_` for any
    character that a variable's name cannot hold. Variables without `__` that are no option are not
    ours: Kubernetes sets `GATEWAY_PORT` and others for a service called "gateway".
    """
    found = Overrides()
    for variable in sorted(env):
        if not variable.upper().startswith(PREFIX):
            continue
        words = variable[len(PREFIX) :].split("__")
        if len(words) == 1 and words[0].lower() not in Config.model_fields:
            continue
        place = _place(words, tree)
        if place is None or at(Config, place) is None:
            shown = ".".join(words).lower()
            hint = _hint(words)
            found.mistakes.append(Mistake((), f"there is no option {shown}{hint}", source=variable))
            continue
        try:
            found.values[place] = _read(env[variable], at(Config, place))
        except yaml.YAMLError:
            found.mistakes.append(
                Mistake(place, "is not YAML; write it like [a, b] or {a: b}", source=variable)
            )
            continue
        found.variables[place] = variable
    return found


def stray_variables(env: Mapping[str, str]) -> list[str]:
    """Return warnings about variables that look like a misspelt override."""
    overrides = {
        "_".join(("GATEWAY", section.upper(), option.upper())): (section, option)
        for section, info in Config.model_fields.items()
        if (model := as_model(info.annotation)) is not None
        for option in model.model_fields
    }
    return [
        f"{variable} is not used; the override of {section}.{option} is "
        f"{PREFIX}{section.upper()}__{option.upper()}"
        for variable in sorted(env)
        if variable in overrides
        for section, option in (overrides[variable],)
    ]


def _hint(words: list[str]) -> str:
    annotation: Any = Config
    for word in words:
        model = as_model(annotation)
        below = step(annotation, word.lower())
        if model is not None and below is None:
            near = nearest(word, list(model.model_fields))
            return "" if near is None else f'; did you mean "{near}"?'
        annotation = below
    return ""


def _place(words: list[str], tree: Any) -> Place | None:
    """Return the place that the words of a variable name; names of the tree win over the words' case."""
    annotation: Any = Config
    place: Place = ()
    for word in words:
        if not word:
            return None
        key: str | int = word.lower()
        if as_model(annotation) is None:
            chosen = _chosen(word, tree, annotation, keep_case=place != ("upstreams",))
            if chosen is None:
                return None
            key = chosen
        annotation = step(annotation, key)
        place = (*place, key)
        tree = _below(tree, key)
    return place


def _chosen(word: str, tree: Any, annotation: Any, *, keep_case: bool) -> str | int | None:
    if not is_mapping(annotation):
        return int(word) if word in {str(index) for index in range(len(as_list(tree) or ()))} else None
    for key in as_dict(tree) or ():
        if re.sub(r"\W", "_", key).lower() == word.lower():
            return key
    return word if keep_case else word.lower()


def _below(tree: Any, key: str | int) -> Any:
    try:
        return tree[key]
    except (KeyError, IndexError, TypeError):
        return None


def _read(text: str, annotation: Any) -> Any:
    if is_section(annotation) and text.lstrip()[:1] in ("[", "{"):
        return yaml.safe_load(text)
    return text


def apply(overrides: Overrides, tree: dict[str, Any]) -> None:
    """Set the overridden places of a tree."""
    for place, value in overrides.values.items():
        here: Any = tree
        for index, key in enumerate(place[:-1]):
            below: Any = _below(here, key)
            if below is None:
                below = here[key] = dict[str, Any]()
            if as_dict(below) is None and as_list(below) is None:
                words = f"{spell(place[: index + 1])} is {quote(below)}; nothing below it can be set"
                overrides.mistakes.append(Mistake(place, words))
                break
            here = below
        else:
            here[place[-1]] = value


def interpolate(tree: dict[str, Any], env: Mapping[str, str], skip: Mapping[Place, Any]) -> list[Mistake]:
    """Put variables into the places that may hold `${NAME}`; `$${NAME}` stays as `${NAME}`.

    These are URLs, headers, `env`, passwords, secrets and the options of plugins.
    """
    mistakes: list[Mistake] = []

    def fill(place: Place, text: str) -> str:
        def one(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            if escaped:
                return match.group(0)[1:]
            if not _VARIABLE.fullmatch(name):
                mistakes.append(Mistake(place, f"{quote('${' + name + '}')} does not name a variable"))
            elif name not in env:
                mistakes.append(Mistake(place, f"the environment variable {name} is not set"))
            else:
                return env[name]
            return ""

        return _NAME.sub(one, text)

    def walk(value: Any, place: Place) -> Any:
        if place in skip:
            return value
        if (mapping := as_dict(value)) is not None:
            return {key: walk(inner, (*place, key)) for key, inner in mapping.items()}
        if (items := as_list(value)) is not None:
            return [walk(inner, (*place, index)) for index, inner in enumerate(items)]
        return fill(place, value) if isinstance(value, str) and may_hold_variables(place) else value

    tree.update(walk(tree, ()))
    return mistakes


def may_hold_variables(place: Place) -> bool:
    """Tell whether the value at a place may hold `${NAME}`."""
    match place:
        case ("secret",) | ("store", "url" | "password") | ("upstreams", _, "url"):
            return True
        case ("upstreams", _, "headers" | "env", _):
            return True
        case ("plugins", _, str(option), *_):
            return option != "name"
        case _:
            return False
