"""What a scene must have come to, whatever the client.

Where clients show the same thing in different forms (an error that is raised or returned, a failed task
whose result is fetched or not), each form counts.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.wire.clients_tried import Account, Client
from tests.wire.clients_upstreams import Tool

# The second where the stateless era is spoken: there the first is no code that a server may use.
_CODES = frozenset({-32050, -32603})
# These write nothing that tells of a task in the stateless era.
_SILENT = frozenset({"inspector-c"})


def mistake(client: Client, name: str, scene: str, tool: Tool, account: Account | None) -> str | None:
    """Return what is wrong with an account, `None` where all is as it should be."""
    if account is None:
        return f"{scene}: not played"
    wrong = _WRONG.get(scene, _answered)(tool, account)
    if wrong is None and scene in {"task", "cancel", "input", "list"} and name not in _SILENT:
        wrong = None if account["dialect"] == client.dialect else f"dialect {account['dialect']}"
    return wrong and f"{scene}: {wrong}: {account}"


def _answered(tool: Tool, account: Account) -> str | None:
    if not account["ok"] or account["is_error"] or tool.words not in account["result"]:
        return f"not answered with {tool.words!r}"
    if account["statuses"] and account["statuses"][-1] != "completed":
        return "not completed"
    return None


def _failed(tool: Tool, account: Account) -> str | None:
    told = account.get("result") or account.get("error", {}).get("message", "")
    if tool.words not in told:
        return f"does not tell {tool.words!r}"
    return None if account.get("is_error") or account.get("error") else "no error"


def _refused(tool: Tool, account: Account) -> str | None:
    error = account.get("error")
    if error is None:
        return _failed(tool, account)
    coded = error["code"] in _CODES or error["code"] in {None, "error"}
    return None if coded and tool.words in error["message"] else "another error"


def _cancelled(tool: Tool, account: Account) -> str | None:
    return None if account["statuses"][-1:] == ["cancelled"] else "not cancelled"


def _asked(tool: Tool, account: Account) -> str | None:
    return _answered(tool, account) or (None if account["asked"] else "nothing asked")


def _listed(tool: Tool, account: Account) -> str | None:
    return _answered(tool, account) or (None if account.get("listed") else "not listed")


def _stepped(tool: Tool, account: Account) -> str | None:
    return _answered(tool, account) or (None if account["progress"] else "no progress")


def _told(tool: Tool, account: Account) -> str | None:
    return _answered(tool, account) or (None if account.get("told") else "not told")


_WRONG: dict[str, Callable[[Tool, Account], str | None]] = {
    "fail": _failed,
    "rpc_error": _refused,
    "cancel": _cancelled,
    "input": _asked,
    "plain_input": _asked,
    "sample": _asked,
    "list": _listed,
    "progress": _stepped,
    "subscribe": _told,
}
