"""What every command works with."""

from __future__ import annotations

from typing import NamedTuple

from gateway.aio.clock import Clock
from gateway.aio.spawn import Crew
from gateway.client.asker import Asker
from gateway.client.connection import Connection
from gateway.client.desk import Desk
from gateway.client.screen import Screen


class Means(NamedTuple):
    """The open connection, who listens to it, and who can be asked and told."""

    connection: Connection
    desk: Desk
    asker: Asker
    screen: Screen
    clock: Clock
    crew: Crew
