"""The policy book that an upstream's `tasks` section becomes."""

from __future__ import annotations

from typing import Any

from gateway.config.slices import policy_book
from gateway.config.upstream import TasksConfig
from gateway.tasks.policy import FORBIDDEN, Policy, PolicyBook, grant_keep_alive


def book(tasks: dict[str, Any]) -> PolicyBook:
    return policy_book(TasksConfig.model_validate(tasks))


def test_an_empty_section_is_the_default_policy() -> None:
    made = book({})
    assert made.find("tools/call", "anything") == Policy()
    assert made.find("resources/read", None) is FORBIDDEN


def test_the_first_pattern_that_matches_holds() -> None:
    made = book({"tools": {"get_user": "required", "get_*": "forbidden", "*": {"timeout": "1s"}}})
    assert made.find("tools/call", "get_user").mode == "required"
    assert made.find("tools/call", "get_all").mode == "forbidden"
    other = made.find("tools/call", "render")
    assert (other.pattern, other.mode, other.timeout) == ("*", "optional", 1_000)


def test_a_rule_takes_what_it_leaves_out_from_the_section() -> None:
    made = book(
        {
            "default": "required",
            "poll_interval": "5s",
            "timeout": "3h",
            "max_concurrent": 8,
            "on_loss": "retry",
            "refuse_plain": True,
            "keep_alive": {"default": "2h", "max": "48h"},
            "tools": {
                "a": {"max_concurrent": "unlimited", "refuse_plain": False},
                "b": {"on_loss": "fail"},
            },
        }
    )
    section: dict[str, Any] = {
        "mode": "required",
        "poll_interval": 5_000,
        "timeout": 10_800_000,
        "keep_alive_default": 7_200_000,
        "keep_alive_max": 172_800_000,
    }
    assert made.default == Policy(**section, max_concurrent=8, on_loss="retry", refuse_plain=True)
    assert made.find("tools/call", "a") == Policy(
        pattern="a", **section, max_concurrent=None, on_loss="retry", refuse_plain=False
    )
    assert made.find("tools/call", "b") == Policy(
        pattern="b", **section, max_concurrent=8, on_loss="fail", refuse_plain=True
    )


def test_a_rule_that_only_raises_the_cap_keeps_the_default_retention() -> None:
    rule = book({"tools": {"render_*": {"keep_alive": {"max": "7d"}}}}).find("tools/call", "render_x")
    assert (rule.keep_alive_default, rule.keep_alive_max) == (3_600_000, 604_800_000)


def test_a_cap_below_the_inherited_default_cuts_it() -> None:
    made = book({"keep_alive": {"max": "30m"}, "tools": {"a": {"keep_alive": {"max": "1m"}}}})
    assert made.default.keep_alive_default == 1_800_000
    assert made.find("tools/call", "a").keep_alive_default == 60_000


def test_a_rule_that_sets_only_the_default_keeps_the_cap() -> None:
    rule = book({"tools": {"a": {"keep_alive": {"default": "2h"}}}}).find("tools/call", "a")
    assert (rule.keep_alive_default, rule.keep_alive_max) == (7_200_000, 86_400_000)


def test_an_unlimited_cap_grants_what_was_asked() -> None:
    rule = book({"tools": {"a": {"keep_alive": {"max": "unlimited"}}}}).find("tools/call", "a")
    assert rule.keep_alive_max is None
    assert grant_keep_alive(rule, None, wanted_forever=True) is None
    assert grant_keep_alive(rule, None, wanted_forever=False) == 3_600_000


def test_methods_have_rules_of_their_own() -> None:
    made = book(
        {"methods": {"resources/read": "optional", "prompts/get": {"mode": "required", "timeout": 9}}}
    )
    assert made.find("resources/read", None).mode == "optional"
    assert made.find("prompts/get", None) == Policy(pattern="prompts/get", mode="required", timeout=9_000)
