"""The JSON Schema of the configuration, for editors.

Draft-07, because that is what YAML editors speak. In it nothing beside a `$ref` counts, so references
with a description are wrapped into `allOf`.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.config.kinds import Kind
from gateway.config.model import Config
from gateway.config.shape import Model, as_dict, as_list, sections
from gateway.config.upstream import RuleConfig

DRAFT: Final = "http://json-schema.org/draft-07/schema#"


def json_schema() -> dict[str, Any]:
    """Return the schema of the YAML file."""
    made = Config.model_json_schema(ref_template="#/definitions/{model}")
    definitions = made.pop("$defs")
    schema: dict[str, Any] = {"$schema": DRAFT, **made, "title": "MCP Task Gateway"}
    schema["definitions"] = definitions
    for _, model in sections(Config):
        part = schema if model is Config else definitions[model.__name__]
        for name, info in model.model_fields.items():
            _one_option(part["properties"][name], info, model)
    rule = definitions["RuleConfig"]
    words = {"enum": ["forbidden", "optional", "required"]}
    definitions["RuleConfig"] = {"anyOf": [words, rule], "description": rule.pop("description")}
    admin = schema["properties"]["admin"]
    admin["anyOf"] = [{"$ref": "#/definitions/AdminConfig"}, {"enum": ["off", False]}]
    definitions["UpstreamConfig"]["oneOf"] = [{"required": ["url"]}, {"required": ["command"]}]
    schema["required"] = ["upstreams"]
    schema["properties"]["upstreams"]["minProperties"] = 1
    return _draft_07(schema)


def kind_of(info: FieldInfo) -> Kind | None:
    """Return the kind of an option's value, `None` where it has no notation of its own."""
    return next((meta for meta in info.metadata if isinstance(meta, Kind)), None)


def _one_option(part: dict[str, Any], info: FieldInfo, model: Model) -> None:
    """Write the default as a person would; take away titles that only repeat the name."""
    part.pop("title", None)
    kind = kind_of(info)
    unsaid: tuple[Any, ...] = (None, "**********", {})
    if model is RuleConfig or isinstance(info.default, BaseModel) or part.get("default") in unsaid:
        part.pop("default", None)
    elif kind is not None and part.get("type") != "integer":
        shown = kind.show(info.default)
        part["default"] = int(shown) if kind.words.startswith("number") and shown.isdecimal() else shown


def _draft_07(part: Any) -> Any:
    if (items := as_list(part)) is not None:
        return [_draft_07(item) for item in items]
    if (mapping := as_dict(part)) is None:
        return part
    done = {key: _draft_07(value) for key, value in mapping.items()}
    if "$ref" in done and len(done) > 1:
        done = {"allOf": [{"$ref": done.pop("$ref")}], **done}
    return done
