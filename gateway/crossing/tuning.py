"""The level of log messages in a held session: as verbose as the most verbose call has asked for."""

from __future__ import annotations

import logging

from gateway.crossing.call import verbosity
from gateway.crossing.held import HeldSession
from gateway.protocol.envelope import dump
from gateway.protocol.errors import UpstreamLost
from gateway.protocol.headers import Headers
from gateway.protocol.splice import put_together

_log = logging.getLogger("gateway.crossing")


async def tune(session: HeldSession, level: str | None, headers: Headers) -> None:
    """Make the upstream log at least so much (2025-11-25 logging, "Setting Log Level").

    Sent once for each step up, and not again where the upstream does not take it: a call is more than
    its log lines. Raises `UpstreamLost` where the session is gone.
    """
    if level is None or "logging" not in session.capabilities:
        return
    if verbosity(level) <= verbosity(session.level):
        return
    async with session.setting:
        if verbosity(level) <= verbosity(session.level):
            return
        await session.heard()
        try:
            await session.ask("logging/setLevel", put_together({"level": dump(level)}), headers)
        except UpstreamLost as wrong:
            if session.lost:
                raise
            _log.info("the upstream did not take a log level: %s", wrong)
        session.level = level
