"""Which options there are below which: a walk over the types of the model.

The environment, the error messages, the schema and the reference all need to know what may stand
at a place such as `upstreams.reports.tasks.timeout`; they ask here.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel

Place = tuple[str | int, ...]
Model = type[BaseModel]


def as_dict(value: Any) -> dict[str, Any] | None:
    """Return a mapping of the tree of values, `None` where the value is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """Return a list of the tree of values, `None` where the value is something else."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def bare(annotation: Any) -> Any:
    """Return a type without `Annotated` and without `| None`."""
    while True:
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation = args[0]
        elif (
            origin in (Union, types.UnionType)
            and len(rest := [a for a in args if a is not type(None)]) == 1
        ):
            annotation = rest[0]
        else:
            return annotation


def as_model(annotation: Any) -> Model | None:
    """Return the model that a type is, `None` where it is none."""
    plain = bare(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, BaseModel) else None


def item(annotation: Any) -> Any:
    """Return the type of the values of a mapping or the items of a list, `None` for other types."""
    plain = bare(annotation)
    origin, args = get_origin(plain), get_args(plain)
    if origin is dict:
        return args[1]
    return args[0] if origin is tuple else None


def is_mapping(annotation: Any) -> bool:
    """Tell whether a type is a mapping whose keys the operator chooses."""
    return get_origin(bare(annotation)) is dict


def is_section(annotation: Any) -> bool:
    """Tell whether a type holds more options: a model, a mapping or a list."""
    return as_model(annotation) is not None or item(annotation) is not None


def step(annotation: Any, key: str | int) -> Any:
    """Return the type one step below, `None` where there is none."""
    model = as_model(annotation)
    if model is not None:
        found = model.model_fields.get(str(key))
        return None if found is None else found.annotation
    return item(annotation)


def at(root: Model, place: Place) -> Any:
    """Return the type that stands at a place, `None` where there is none."""
    annotation: Any = root
    for key in place:
        annotation = step(annotation, key)
        if annotation is None:
            return None
    return annotation


def sections(root: Model, place: str = "") -> Iterator[tuple[str, Model]]:
    """Yield each section under its dotted name, in the order of the model; `*` stands for a chosen name."""
    yield place, root
    for name, info in root.model_fields.items():
        below = f"{place}.{name}" if place else name
        inner: Any = info.annotation
        while inner is not None and as_model(inner) is None:
            below += ".*" if is_mapping(inner) else "[]"
            inner = item(inner)
        if (model := as_model(inner)) is not None:
            yield from sections(model, below)


def spell(place: Place) -> str:
    """Return a place as an error message shows it; names with odd characters in quotes."""
    shown = ""
    for key in place:
        if isinstance(key, int):
            shown += f"[{key}]"
        else:
            plain = key.replace("_", "").replace("-", "").isalnum()
            shown += ("." if shown else "") + (key if plain else f'"{key}"')
    return shown
