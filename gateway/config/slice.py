"""What every section of the configuration is: frozen, closed to unknown keys, silent about secrets."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from gateway.config.shape import as_dict, is_section


class Slice(BaseModel):
    """A section of the configuration. A section left empty in YAML (null) has its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, value: Any) -> Any:
        section = as_dict(value)
        if section is None:
            return value
        fields = cls.model_fields
        return {
            key: inner
            for key, inner in section.items()
            if inner is not None or key not in fields or not is_section(fields[key].annotation)
        }
