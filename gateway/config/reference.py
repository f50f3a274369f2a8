"""The reference of all options, made from the model: `python -m gateway.config.reference` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from gateway.config.changes import LIVE
from gateway.config.model import Config
from gateway.config.schema import kind_of
from gateway.config.shape import Model, as_model, bare, is_mapping, is_section, item, sections
from gateway.config.upstream import RuleConfig

FILE: Final = Path(__file__).with_name("REFERENCE.md")

_HEAD = """\
# Configuration reference

Made from the code by `python -m gateway.config.reference`; do not edit.

Durations are written like `500ms`, `2s`, `1m30s`, `1h` or `7d`; a plain number is seconds. Sizes are
written like `512KiB`, `4MiB` or `16MB`; a plain number is bytes. Relative paths start at the folder of
the configuration file.

Every option can be set by the environment: `GATEWAY_` and the path of the option in capitals, joined by
two underscores. `GATEWAY_STORE__URL` is `store.url`, `GATEWAY_UPSTREAMS__REPORTS__TASKS__TIMEOUT` is
`upstreams.reports.tasks.timeout`. Lists and mappings are written in YAML's flow form, `[a, b]`. Names
that you chose (upstreams, patterns) are found whatever their case, with `_` for characters that a
variable's name cannot hold.

Where an option says that it may hold `${ENV_NAME}`, the variable's value is put in; `$${ENV_NAME}`
stays as it is.

At SIGHUP `serve` reads the file anew. What may differ then, for new requests and tasks:
{live}.
A file in which another option differs is refused with a line in the log, and the old one stays.
"""


def reference() -> str:
    """Return the reference in Markdown; a section that several places share is there once."""
    places: dict[Model, list[str]] = {}
    for place, model in sections(Config):
        places.setdefault(model, []).append(f"`{place}`" if place else "Top level")
    live = ",\n".join(f"`{'.'.join(place)}`" for place in sorted(LIVE))
    return _HEAD.replace("{live}", live) + "".join(
        _section(" and ".join(titles), model) for model, titles in places.items()
    )


def _section(title: str, model: Model) -> str:
    text = f"\n## {title}\n\n{(model.__doc__ or '').strip()}\n"
    text += "\n| option | type | default | meaning |\n| --- | --- | --- | --- |\n"
    for name, info in model.model_fields.items():
        meaning = (info.description or "").replace("|", "\\|")
        text += f"| `{name}` | {_type(info)} | {_default(info, model)} | {meaning} |\n"
    return text


def _type(info: FieldInfo) -> str:
    kind = kind_of(info)
    return kind.words if kind is not None else _words(info.annotation)


def _words(annotation: Any) -> str:
    plain = bare(annotation)
    if get_origin(plain) is Literal:
        return " or ".join(f"`{word}`" for word in get_args(plain))
    if as_model(plain) is not None:
        return "section"
    if is_section(plain):
        kind = "mapping of name to" if is_mapping(plain) else "list of"
        return f"{kind} {_words(item(plain))}"
    return {bool: "`true` or `false`", SecretStr: "text, secret", Path: "path"}.get(plain, "text")


def _default(info: FieldInfo, model: Model) -> str:
    kind, value = kind_of(info), info.default
    if info.is_required():
        return "required"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, BaseModel) or (value is None and (kind is None or model is RuleConfig)):
        return ""
    if kind is not None:
        return f"`{kind.show(value)}`"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return "`[]`" if value == () else f"`{value}`"


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
