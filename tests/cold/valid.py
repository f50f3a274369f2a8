"""Checks every message that a client of dialect B or C gets against the official schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from tests.schemas import Schema, mistakes

# By version: which schema and type the result of each method is of.
_RESULTS: Final[Mapping[str, Mapping[str, tuple[Schema, str]]]] = {
    "b": {
        "tools/call": ("2025-11-25", "CreateTaskResult"),
        "tasks/get": ("2025-11-25", "GetTaskResult"),
        "tasks/result": ("2025-11-25", "CallToolResult"),
        "tasks/list": ("2025-11-25", "ListTasksResult"),
        "tasks/cancel": ("2025-11-25", "CancelTaskResult"),
    },
    "c": {
        "tools/call": ("tasks-extension", "CreateTaskResult"),
        "tasks/get": ("tasks-extension", "GetTaskResult"),
        "tasks/update": ("tasks-extension", "UpdateTaskResult"),
        "tasks/cancel": ("tasks-extension", "CancelTaskResult"),
    },
}
_TOLD: Final[Mapping[str, Mapping[str, tuple[Schema, str]]]] = {
    "b": {
        "notifications/tasks/status": ("2025-11-25", "TaskStatusNotification"),
        "notifications/progress": ("2025-11-25", "ProgressNotification"),
        "notifications/message": ("2025-11-25", "LoggingMessageNotification"),
        "elicitation/create": ("2025-11-25", "ElicitRequest"),
        "sampling/createMessage": ("2025-11-25", "CreateMessageRequest"),
        "roots/list": ("2025-11-25", "ListRootsRequest"),
    },
    "c": {
        "notifications/tasks": ("tasks-extension", "TaskStatusNotification"),
        "notifications/subscriptions/acknowledged": ("2026-07-28", "SubscriptionsAcknowledgedNotification"),
    },
}


class Checked:
    """The messages to one client: what is wrong with them, and what they say of the task's status."""

    def __init__(self, dialect: Literal["b", "c"]) -> None:
        self._dialect = dialect
        self._asked: dict[str, str] = {}
        self.statuses: list[str] = []

    def sent(self, message: Mapping[str, Any]) -> None:
        """Take a request of the client's."""
        if "method" in message and "id" in message:
            self._asked[json.dumps(message["id"])] = message["method"]

    def wrong(self, message: dict[str, Any]) -> list[str]:
        """Take a message to the client and return what is wrong with it."""
        if "error" in message:
            return mistakes("2025-11-25", "JSONRPCErrorResponse", message)
        if "method" in message:
            self._note(message.get("params", {}), message["method"])
            schema, name = _TOLD[self._dialect][message["method"]]
            return mistakes(schema, name, message)
        method = self._asked[json.dumps(message["id"])]
        result = message["result"]
        self._note(result.get("task", result), method)
        schema, name = _RESULTS[self._dialect][method]
        found = mistakes(schema, name, result)
        if method == "tasks/get" and result.get("status") == "completed" and self._dialect == "c":
            found += mistakes("2026-07-28", "CallToolResult", result["result"])
        return found

    def _note(self, told: Mapping[str, Any], method: str) -> None:
        """Keep a status where it is news: a list or a result tells none."""
        if "status" in told and method != "tasks/result":
            self.statuses.append(told["status"])
