"""What was agreed on with a server."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.client import sep1686, sep2663, v2025_11_25
from gateway.client.view import Letter


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """The dialect to use, `None` for ordinary calls only; `capabilities` are the server's."""

    letter: Letter | None
    stateless: bool = False
    capabilities: dict[str, Any] = {}

    @property
    def tasks(self) -> bool:
        """Whether the server has tasks, in whichever dialect."""
        known = (sep1686.offered, v2025_11_25.offered, sep2663.offered)
        return any(offered(self.capabilities) for offered in known)

    @property
    def can_cancel(self) -> bool:
        """Whether the server declares `tasks/cancel` of dialect B."""
        return v2025_11_25.can(self.capabilities, "cancel")
