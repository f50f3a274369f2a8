"""What the configuration says of one method or tool, and what of a client's wishes is granted."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from gateway.tasks.model import KeptFrom

Mode = Literal["forbidden", "optional", "required"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that holds for one tool or method; durations in milliseconds.

    `pattern` is the rule's pattern as written (or `"default"`): a metric label of bounded number.
    `keep_alive_max` of `None` is without end; `max_concurrent` and `max_concurrent_per_scope` of `None` are
    without limit. `max_queued` bounds the calls that wait for a turn.
    `refuse_plain` refuses a call without task metadata where the mode is `required`. Where the choice
    is the gateway's, a call that ends within `inline_within` is answered at once. `words` is text for
    the model while the task runs.
    """

    pattern: str = "default"
    mode: Mode = "optional"
    keep_alive_default: int = 3_600_000
    keep_alive_max: int | None = 86_400_000
    poll_interval: int = 2_000
    timeout: int = 7_200_000
    max_concurrent: int | None = None
    max_concurrent_per_scope: int | None = None
    max_queued: int = 1_000
    on_loss: Literal["fail", "retry"] = "fail"
    refuse_plain: bool = False
    inline_within: int = 2_000
    words: str | None = None

    @property
    def takes_turns(self) -> bool:
        """Whether not all calls may run at the same time."""
        return self.max_concurrent is not None or self.max_concurrent_per_scope is not None


class PolicyBook(msgspec.Struct, frozen=True, kw_only=True):
    """All rules of one upstream: `tools` by pattern (first match wins), `methods` by name."""

    default: Policy
    tools: tuple[tuple[str, Policy], ...] = ()
    methods: dict[str, Policy] = {}

    def find(self, method: str, tool: str | None) -> Policy:
        """Return the policy of a request; methods that nobody named are `forbidden`."""
        if method == "tools/call":
            for pattern, policy in self.tools:
                if fnmatchcase(tool or "", pattern):
                    return policy
            return self.default
        found = self.methods.get(method)
        return FORBIDDEN if found is None else found

    def named(self, pattern: str) -> Policy | None:
        """Return the rule with this pattern, `None` where there is none."""
        rules = (self.default, *(policy for _, policy in self.tools), *self.methods.values())
        return next((rule for rule in rules if rule.pattern == pattern), None)


FORBIDDEN = Policy(pattern="none", mode="forbidden")


def grant_keep_alive(
    policy: Policy, asked: int | None, *, wanted_forever: bool, kept_from: KeptFrom = "end"
) -> int | None:
    """Return the granted retention, in milliseconds counted from `kept_from`; `None` is for ever.

    A receiver may override what was asked (SEP-1686 section 4.5.1, 2025-11-25 tasks "TTL and Resource
    Management"): the policy's maximum caps it. Counted from the creation it covers the time limit of
    the call, so that nobody is told of a task that may be gone before it ends (I8).
    """
    granted = _capped(policy, asked, wanted_forever=wanted_forever)
    if granted is None or kept_from == "end":
        return granted
    return max(granted, policy.timeout)


def _capped(policy: Policy, asked: int | None, *, wanted_forever: bool) -> int | None:
    if asked is None and not wanted_forever:
        wish: int | None = policy.keep_alive_default
    else:
        wish = asked
    if policy.keep_alive_max is None:
        return wish
    return policy.keep_alive_max if wish is None else min(wish, policy.keep_alive_max)
