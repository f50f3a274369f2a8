"""Messages checked against the official JSON schemas, each by the method that it belongs to.

Clients of the tests check what they send and what they receive with it, so that neither side of the
wire can drift from the protocol unseen. The copies of the schemas are in `tests/schemas`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import jsonschema

Json: TypeAlias = dict[str, Any]
Version: TypeAlias = Literal["2025-11-25", "2026-07-28"]

FOLDER: Final = Path(__file__).parents[1] / "schemas"
EXTENSION: Final = "tasks-extension"
# What the extension adds to protocol 2026-07-28: requests and notifications, results by method.
_ADDED: Final = {
    "tasks/get": "GetTaskRequest",
    "tasks/update": "UpdateTaskRequest",
    "tasks/cancel": "CancelTaskRequest",
    "notifications/tasks": "TaskStatusNotification",
}
_ADDED_RESULTS: Final = {
    "tasks/get": "GetTaskResult",
    "tasks/update": "UpdateTaskResult",
    "tasks/cancel": "CancelTaskResult",
}
_SHOWN: Final = 5


class Book:
    """The messages of one version of the protocol, of 2026-07-28 with the tasks extension."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self._defs = _definitions(version)
        self._methods = _by_method(self._defs)
        self._errors = _by_code(self._defs)

    def check(self, message: object, asked: Json | None = None) -> None:
        """Raise `AssertionError` for a message that the schema forbids.

        `asked` is the request that a response answers; without it only the response's form is looked
        at.
        """
        faults = self.faults(message, asked)
        assert not faults, f"{self.version}: {'; '.join(faults)}: {json.dumps(message)[:2000]}"

    def faults(self, message: object, asked: Json | None = None) -> list[str]:
        """Return what is wrong with a message, in words."""
        if not isinstance(message, dict):
            return ["not one JSON object"]
        one = cast("Json", message)
        if "method" in one:
            return self._call_faults(one)
        if "error" in one:
            return self._error_faults(one, asked)
        return self._result_faults(one, asked)

    def result_faults(self, name: str, result: object) -> list[str]:
        """Return what is wrong with an object that is to be of a definition, such as `CallToolResult`."""
        return _faults(self.version, name, result)

    def _call_faults(self, message: Json) -> list[str]:
        method = str(message["method"])
        plain = "JSONRPCRequest" if "id" in message else "JSONRPCNotification"
        if self.version == "2026-07-28" and method in _ADDED:
            return _faults(EXTENSION, _ADDED[method], message)
        return _faults(self.version, self._methods.get(method, plain), message)

    def _error_faults(self, message: Json, asked: Json | None) -> list[str]:
        error: Any = message["error"]
        code: Any = cast("Json", error).get("code") if isinstance(error, dict) else None
        name = self._errors.get(code, "JSONRPCErrorResponse")
        return [*_faults(self.version, name, message), *_id_faults(message, asked)]

    def _result_faults(self, message: Json, asked: Json | None) -> list[str]:
        faults = [*_faults(self.version, "JSONRPCResultResponse", message), *_id_faults(message, asked)]
        if asked is None or faults:
            return faults
        result: Json = message["result"]
        return _faults(*self._definition(asked, result), result)

    def _definition(self, asked: Json, result: Json) -> tuple[str, str]:
        method = str(asked["method"])
        kind = result.get("resultType")
        if self.version == "2026-07-28":
            if kind == "task":
                return EXTENSION, "CreateTaskResult"
            if kind == "input_required":
                return self.version, "InputRequiredResult"
            if method in _ADDED_RESULTS:
                return EXTENSION, _ADDED_RESULTS[method]
        elif "task" in asked.get("params", {}) and "task" in result:
            return self.version, "CreateTaskResult"
        name = self._methods.get(method, "").removesuffix("Request") + "Result"
        return self.version, name if name in self._defs else "Result"


@cache
def book(version: Version) -> Book:
    """Return the book of a version, made once."""
    return Book(version)


@cache
def _definitions(name: str) -> Json:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["$defs"]


@cache
def _validator(schema: str, name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": _definitions(schema)},
        format_checker=jsonschema.FormatChecker(),
    )


def _faults(schema: str, name: str, thing: object) -> list[str]:
    errors = list(cast("Any", _validator(schema, name)).iter_errors(thing))
    words = [f"{name}{error.json_path[1:]}: {str(error.message)[:300]}" for error in errors[:_SHOWN]]
    return [*words, f"and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else words


def _id_faults(message: Json, asked: Json | None) -> list[str]:
    if asked is None:
        return []
    wanted, found = asked.get("id"), message.get("id")
    same = wanted == found and type(wanted) is type(found)
    return [] if same else [f"answers id {found!r}, asked was {wanted!r}"]


def _by_method(definitions: Json) -> dict[str, str]:
    return {
        method: name
        for name, one in definitions.items()
        if (method := one.get("properties", {}).get("method", {}).get("const"))
    }


def _by_code(definitions: Json) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name, one in definitions.items():
        for part in one.get("properties", {}).get("error", {}).get("allOf", []):
            code = part.get("properties", {}).get("code", {}).get("const")
            if code is not None:
                found[code] = name
    return found
