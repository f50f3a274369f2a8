"""From the `tasks` section of an upstream to the policy book that the task service asks."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from gateway.config.upstream import KeepAliveConfig, RuleConfig, TasksConfig
from gateway.tasks.policy import Policy, PolicyBook

_UNLIMITED: Final = ("max_concurrent", "max_concurrent_per_scope")


def policy_book(tasks: TasksConfig) -> PolicyBook:
    """Return the rules of one upstream; what a rule leaves out is as the section says."""
    default = Policy(
        pattern="default",
        mode=tasks.default,
        keep_alive_default=_cut(tasks.keep_alive.default, tasks.keep_alive.max),
        keep_alive_max=tasks.keep_alive.max,
        poll_interval=tasks.poll_interval,
        timeout=tasks.timeout,
        max_concurrent=tasks.max_concurrent,
        max_concurrent_per_scope=tasks.max_concurrent_per_scope,
        max_queued=tasks.max_queued,
        on_loss=tasks.on_loss,
        refuse_plain=tasks.refuse_plain,
        inline_within=tasks.inline_within,
        words=tasks.immediate_response,
    )
    return PolicyBook(
        default=default,
        tools=tuple((pattern, _rule(pattern, rule, default)) for pattern, rule in tasks.tools.items()),
        methods={method: _rule(method, rule, default) for method, rule in tasks.methods.items()},
    )


def _rule(pattern: str, rule: RuleConfig, default: Policy) -> Policy:
    given = rule.model_fields_set - {"keep_alive"}
    # Null is "unlimited" for these and "as above" for everything else.
    wish: dict[str, Any] = {
        name: value
        for name in given - {"immediate_response"}
        if (value := getattr(rule, name)) is not None or name in _UNLIMITED
    }
    if rule.immediate_response is not None:
        wish["words"] = rule.immediate_response
    return replace(default, pattern=pattern, **wish, **_keep_alive(rule.keep_alive, default))


def _keep_alive(given: KeepAliveConfig | None, default: Policy) -> dict[str, int | None]:
    if given is None:
        return {}
    longest = given.max if "max" in given.model_fields_set else default.keep_alive_max
    usual = given.default if "default" in given.model_fields_set else default.keep_alive_default
    return {"keep_alive_default": _cut(usual, longest), "keep_alive_max": longest}


def _cut(usual: int, longest: int | None) -> int:
    return usual if longest is None else min(usual, longest)
