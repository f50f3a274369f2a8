"""What a supervisor and a worker say to each other."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from gateway.observe.sums import Family

LEAVE: Final = 1
DRAIN: Final = 2
NOW: Final = 3
KILL: Final = 4


class Message(msgspec.Struct, tag=True, frozen=True):
    """What every message is."""


class Begin(Message, frozen=True):
    """The first words to a worker: its number, the supervisor's version, the configuration (pickled)."""

    number: int
    version: str
    config: bytes


class AskMetrics(Message, frozen=True):
    """Tell your metrics."""

    ident: int


class AskReady(Message, frozen=True):
    """Tell whether you are ready, whatever the checks in `exclude` say."""

    ident: int
    exclude: frozenset[str]


class Renew(Message, frozen=True):
    """Take a new configuration (pickled), which is known to be good."""

    ident: int
    config: bytes


class Stop(Message, frozen=True):
    """End: `LEAVE` gives balancers their time, `DRAIN` lets what runs finish, `NOW` does not."""

    level: int


class Serving(Message, frozen=True):
    """The worker takes connections from now on."""

    replica: str


class Leaving(Message, frozen=True):
    """The worker is about to end: it takes connections where nobody else does."""


class Closed(Message, frozen=True):
    """The worker wants no more connections."""


class NoMore(Message, frozen=True):
    """The answer to `Closed`: whatever was handed over lies at the door."""


class Failed(Message, frozen=True):
    """The worker could not start; `mistaken` where the configuration is to blame."""

    words: str
    mistaken: bool


class Beat(Message, frozen=True):
    """The worker lives: how many connections it has, and how many it has been handed so far."""

    connections: int
    taken: int


class Metrics(Message, frozen=True):
    """The answer to `AskMetrics`; 0 where nobody asked, in a worker's last words."""

    ident: int
    families: list[Family]


class Ready(Message, frozen=True):
    """The answer to `AskReady`."""

    ident: int
    found: dict[str, Any]


class Renewed(Message, frozen=True):
    """The answer to `Renew`: whether the configuration was taken. The worker's log says why not."""

    ident: int
    taken: bool


ToWorker: TypeAlias = Begin | AskMetrics | AskReady | Renew | Stop | NoMore
Answer: TypeAlias = Metrics | Ready | Renewed
ToSupervisor: TypeAlias = Serving | Leaving | Closed | Failed | Beat | Metrics | Ready | Renewed
