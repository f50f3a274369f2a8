"""Shell-style patterns of tools, and whether one leaves nothing over for another."""

from __future__ import annotations

import re

_SET = re.compile(r"\[!?\]?[^\]]*\]")
_ONE, _MANY, _SOME = "\ue000", "\ue001", "\ue002"


def covers(earlier: str, later: str) -> bool:
    """Tell whether everything that `later` matches is matched by `earlier` (as `fnmatch` matches).

    True is certain; false may also mean that it was too hard to tell (sets of characters).
    """
    if earlier == later:
        return True
    if _SET.search(earlier):
        return False
    rule = "".join(
        ".*" if char == "*" else f"[^{_MANY}]" if char == "?" else re.escape(char)
        for char in re.sub(r"\*+", "*", earlier)
    )
    word = _SET.sub(_SOME, later).replace("?", _ONE).replace("*", _MANY)
    return re.fullmatch(rule, word, re.DOTALL) is not None
