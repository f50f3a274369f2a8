"""Says once that the store is away and once that it is back, however many operations find out."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

_log: Final = logging.getLogger("gateway.store")
RANDOM: Final = random.Random()  # noqa: S311  spreads load, keeps no secret
_AGAIN_SECONDS: Final = 60.0
_FLAPPING_SECONDS: Final = 10.0
_MAX_WORDS: Final = 200

_MEANINGS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (BusyLoadingError, "it is still loading its data"),
    (AuthenticationError, "it refuses the login"),
    (AuthorizationError, "it refuses the login"),
    (NoPermissionError, "its user lacks a permission"),
    (OutOfMemoryError, "its memory is full"),
    (ReadOnlyError, "it is a replica and takes no writes"),
    (MasterDownError, "it is a replica that has lost its primary"),
)


# Before 7.0 an error inside a script stands in one of the script's own.
_IN_SCRIPT: Final = re.compile(
    r"^Error running script .*?: -(OOM|READONLY|NOPERM|MASTERDOWN) (.*)", re.DOTALL
)
_KINDS: Final[dict[str, type[ResponseError]]] = {
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "NOPERM": NoPermissionError,
    "MASTERDOWN": MasterDownError,
}
_LOGIN: Final = ("invalid username-password", "Authentication required")


def unwrapped(error: ResponseError) -> ResponseError:
    """Return the error that made a script fail, where that says more than the script's own."""
    found = _IN_SCRIPT.match(str(error)) if type(error) is ResponseError else None
    return error if found is None else _KINDS[found[1]](found[2])


def words_of(error: BaseException) -> str:
    """Return what an error of the store means, with the error's own words."""
    meaning = next((words for kind, words in _MEANINGS if isinstance(error, kind)), "")
    if not meaning and any(words in str(error) for words in _LOGIN):
        meaning = "it refuses the login"
    own = f"{type(error).__name__}: {error}"[:_MAX_WORDS]
    return f"{meaning} ({own})" if meaning else own


class Health:
    """Shared by the connections to one place, which `name` tells apart from others in the log.

    `on_connect` is called after each connection made, `on_lost` whenever answers did not come.
    """

    def __init__(
        self,
        name: str = "the store",
        *,
        on_connect: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._on_lost = on_lost
        self.connected = on_connect
        self._since: float | None = None
        self._told_at = float("-inf")
        self._refusals: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Health {'well' if self._since is None else 'away'}>"

    def lost(self, words: str) -> None:
        """Take note that it did not answer."""
        if self._since is None:
            self._since = now = asyncio.get_running_loop().time()
            # One that comes and goes must not fill the log.
            level = logging.DEBUG if now - self._told_at < _FLAPPING_SECONDS else logging.WARNING
            self._told_at = now if level == logging.WARNING else self._told_at
            _log.log(level, "%s is away: %s", self._name, words)
        self._on_lost()

    def well(self) -> None:
        """Take note that it answered."""
        if self._since is not None:
            level = logging.WARNING if self._told_at == self._since else logging.DEBUG
            seconds = asyncio.get_running_loop().time() - self._since
            self._since = None
            _log.log(level, "%s answers again after %.1f s", self._name, seconds)

    def refused(self, error: Exception) -> None:
        """Take note that it answered with an error; each kind of it is said once a minute."""
        now, kind = asyncio.get_running_loop().time(), type(error).__name__
        if now - self._refusals.get(kind, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._refusals[kind] = now
            _log.warning("%s refuses operations: %s", self._name, words_of(error))
