"""Redis Cluster: which node has which slot, learned from the nodes and corrected by what they answer.

Each node has lanes of its own, so that a command costs what it costs on a single server: one look at its
key's slot is all that is added.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, Literal, cast

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from gateway.aio.clock import SystemClock
from gateway.aio.spawn import Crew
from gateway.protocol.errors import StoreAway
from gateway.store.health import RANDOM, Health
from gateway.store.lanes import Connection, Lane, Reply, refusal
from gateway.store.scripts import Words

_log: Final = logging.getLogger("gateway.store")

Place = tuple[str, int]
LaneName = Literal["quick", "bulk", "leases", "map"]

_MAP_SECONDS: Final = 0.5
_LEARN_SECONDS: Final = 0.25
# Redirections that are followed without a pause; a slot on its way to another node answers with more.
_AT_ONCE: Final = 3
_PAUSE_SECONDS: Final = 0.03


class _Node:
    """One node: its lanes, made when they are first needed."""

    def __init__(self, place: Place, make_lane: Callable[[LaneName], Lane]) -> None:
        self.place = place
        self._make = make_lane
        self._lanes: dict[LaneName, Lane] = {}

    def lane(self, name: LaneName) -> Lane:
        """Return a lane to it."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = self._make(name)
        return lane

    async def close(self) -> None:
        """Close its connections."""
        for lane in list(self._lanes.values()):
            await lane.close()


class Cluster:
    """The nodes as far as they are known; `seeds` is where to ask first. `timeout` is in seconds."""

    def __init__(
        self,
        seeds: Sequence[Place],
        make: Callable[[Place], Connection],
        *,
        timeout: float,
        on_connect: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._seeds = list(seeds)
        self._make = make
        self.timeout = timeout
        self.clock = SystemClock()
        self._on_connect = on_connect
        self._on_lost = on_lost
        self._slots: list[_Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._nodes: dict[Place, _Node] = {}
        self._primaries: list[Place] = []
        self._others: list[Place] = []
        self._crew = Crew("store cluster")
        self._learning: asyncio.Future[None] | None = None
        self._learned_at = float("-inf")
        self._complaint = "no node has been asked yet"

    def __repr__(self) -> str:
        return f"<Cluster of {len(self._primaries)} primaries>"

    def known(self, slot: int) -> _Node | None:
        """Return the node that has a slot, as far as is known."""
        return self._slots[slot]

    async def node_of(self, slot: int) -> _Node:
        """Return the node that has a slot; raise `StoreAway` where none is known."""
        node = self._slots[slot]
        if node is None:
            await self._learn()
            node = self._slots[slot]
            if node is None:
                raise StoreAway(f"the store cannot be reached: {self._complaint}")
        return node

    async def primaries(self) -> list[_Node]:
        """Return all nodes that have slots; raise `StoreAway` where none is known."""
        await self.node_of(0)
        return [self._node(place) for place in self._primaries]

    def moved(self, slot: int, place: Place) -> _Node:
        """Take note that a node has a slot now, and ask how things stand."""
        node = self._slots[slot] = self._node(place)
        self.doubt()
        return node

    def elsewhere(self, place: Place) -> _Node:
        """Return the node at a place."""
        return self._node(place)

    def doubt(self) -> None:
        """Ask the nodes in the background how things stand, unless that was done a moment ago."""
        now = asyncio.get_running_loop().time()
        if self._learning is None and now - self._learned_at >= _LEARN_SECONDS:
            self._begin()

    def is_primary(self, place: Place) -> bool:
        """Tell whether a place is one of a node that has slots."""
        return place in self._primaries

    def some_place(self) -> Place:
        """Return the place of some node: one that has slots where any is known."""
        return RANDOM.choice(self._primaries or self._seeds)

    async def close(self) -> None:
        """Close all connections."""
        await self._crew.close()
        for node in list(self._nodes.values()):
            await node.close()

    def _node(self, place: Place) -> _Node:
        node = self._nodes.get(place)
        if node is None:
            health = Health(
                f"the store's node {place[0]}:{place[1]}", on_connect=self._on_connect, on_lost=self._lost
            )
            node = self._nodes[place] = _Node(place, lambda name: self._lane(place, name, health))
        return node

    def _lane(self, place: Place, name: LaneName, health: Health) -> Lane:
        timeout = min(self.timeout, _MAP_SECONDS) if name == "map" else self.timeout
        return Lane(name, lambda: self._make(place), timeout=timeout, health=health)

    def _lost(self) -> None:
        self.doubt()
        self._on_lost()

    async def _learn(self) -> None:
        """Ask how things stand; who asks while somebody does waits for the same answer."""
        if self._learning is None:
            now = asyncio.get_running_loop().time()
            if now - self._learned_at < _LEARN_SECONDS:
                raise StoreAway(f"the store cannot be reached: {self._complaint}")
            self._begin()
        if self._learning is not None:
            await asyncio.shield(self._learning)

    def _begin(self) -> None:
        self._learning = asyncio.get_running_loop().create_future()
        self._crew.spawn(self._ask_around(self._learning), "learn")

    async def _ask_around(self, done: asyncio.Future[None]) -> None:
        try:
            for place in self._candidates():
                try:
                    (reply,) = await self._node(place).lane("map").ask((b"CLUSTER", b"SLOTS"))
                except StoreAway as away:
                    self._complaint = str(away)
                    continue
                if self._take(place, cast("list[list[Reply]]", reply)):
                    break
        finally:
            self._learned_at = asyncio.get_running_loop().time() + RANDOM.uniform(0, _LEARN_SECONDS)
            self._learning = None
            done.set_result(None)

    def _candidates(self) -> list[Place]:
        known = [*self._primaries]
        RANDOM.shuffle(known)
        return list(dict.fromkeys([*known, *self._others, *self._seeds]))

    def _take(self, asked: Place, rows: list[list[Reply]]) -> bool:
        """Take over an answer to CLUSTER SLOTS; tell whether it names any slot."""
        if not rows:
            self._complaint = "the node belongs to no cluster that has slots"
            return False
        slots: list[_Node | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        primaries: dict[Place, None] = {}
        others: dict[Place, None] = {}
        for first, last, *places in rows:
            primary, *replicas = (_place(row, asked) for row in places)
            primaries[primary] = None
            others |= dict.fromkeys(replicas)
            slots[first : last + 1] = [self._node(primary)] * (last - first + 1)
        self._slots, self._primaries, self._others = slots, list(primaries), list(others)
        for place in [place for place in self._nodes if place not in {*primaries, *others, *self._seeds}]:
            self._crew.spawn(self._retire(self._nodes.pop(place)), "retire")
        return True

    async def _retire(self, node: _Node) -> None:
        """Close the connections to a node that has left, once what is on its way has been answered."""
        try:
            await self.clock.sleep(self.timeout)
        finally:
            await node.close()


class ClusterLane:
    """What a `Lane` is, over all nodes of a cluster."""

    def __init__(self, cluster: Cluster, name: LaneName) -> None:
        self._cluster = cluster
        self._name: LaneName = name
        self._closed = False

    def __repr__(self) -> str:
        return f"<ClusterLane {self._name}: {self._cluster!r}>"

    async def ask(self, *commands: Words) -> list[Reply]:
        """Send commands and return their answers; raise `StoreAway`.

        Those of one slot go out together and in order, those of different slots at the same time.
        """
        deadline = self._deadline()
        if len(commands) == 1:
            return await self._ask_slot(_slot(commands[0]), commands, deadline)
        places: dict[int, list[int]] = {}
        for place, words in enumerate(commands):
            places.setdefault(_slot(words), []).append(place)
        asked = [
            self._ask_slot(slot, [commands[place] for place in own], deadline)
            for slot, own in places.items()
        ]
        if len(asked) == 1:
            return await asked[0]
        replies: list[Reply] = [None] * len(commands)
        for own, answers in zip(places.values(), await asyncio.gather(*asked), strict=True):
            for place, reply in zip(own, answers, strict=True):
                replies[place] = reply
        return replies

    async def ask_in_order(self, *commands: Words) -> list[Reply]:
        """Do the same, but wait for the answers of one slot before anything goes to the next."""
        deadline = self._deadline()
        replies: list[Reply] = []
        for slot, group in groupby(commands, _slot):
            replies += await self._ask_slot(slot, list(group), deadline)
        return replies

    async def ask_everywhere(self, words: Words) -> list[Reply]:
        """Return the answers of all nodes that have slots; raise `StoreAway` where one gives none."""
        nodes = await self._cluster.primaries()
        answers = await asyncio.gather(*(node.lane(self._name).ask(words) for node in nodes))
        return [reply for (reply,) in answers]

    async def close(self) -> None:
        """Take nothing more."""
        self._closed = True

    def _deadline(self) -> float:
        if self._closed:
            raise StoreAway("the store has been closed")
        return asyncio.get_running_loop().time() + self._cluster.timeout

    async def _ask_slot(self, slot: int, commands: Sequence[Words], deadline: float) -> list[Reply]:
        # A question less for most: the node is known.
        node = self._cluster.known(slot) or await self._cluster.node_of(slot)
        replies = await node.lane(self._name).answers(*commands)
        for reply in replies:
            if isinstance(reply, ResponseError):
                return await self._follow(node, slot, commands, replies, deadline)
        return replies

    async def _follow(
        self, node: _Node, slot: int, commands: Sequence[Words], replies: list[Reply], deadline: float
    ) -> list[Reply]:
        """Go where the answers send us, as far as they do; what was sent elsewhere has done nothing yet."""
        loop = asyncio.get_running_loop()
        turns = 0
        while waiting := [place for place, reply in enumerate(replies) if _is_elsewhere(reply)]:
            if loop.time() >= deadline:
                break
            error = replies[waiting[0]]
            turns += 1
            if turns > _AT_ONCE or isinstance(error, TryAgainError):
                await self._cluster.clock.sleep(_PAUSE_SECONDS * RANDOM.uniform(0.5, 1.5))
            node, again = await self._resend(node, slot, [commands[place] for place in waiting], error)
            for place, reply in zip(waiting, again, strict=True):
                replies[place] = reply
        for reply in replies:
            if isinstance(reply, ResponseError):
                if isinstance(reply, (ClusterDownError, ReadOnlyError)):
                    self._cluster.doubt()
                raise refusal(reply)
        return replies

    async def _resend(
        self, node: _Node, slot: int, commands: list[Words], error: Reply
    ) -> tuple[_Node, list[Reply]]:
        """Send commands to the node that an error answer of `node` names; return that node as well."""
        if isinstance(error, MovedError):
            node = self._cluster.moved(slot, _target(error, node))
        elif isinstance(error, AskError):
            node = self._cluster.elsewhere(_target(error, node))
            asking: Iterable[Words] = (words for command in commands for words in ((b"ASKING",), command))
            return node, (await node.lane(self._name).answers(*asking))[1::2]
        else:
            node = await self._cluster.node_of(slot)
        return node, await node.lane(self._name).answers(*commands)


def _is_elsewhere(reply: Reply) -> bool:
    return isinstance(reply, (AskError, TryAgainError))


def _target(error: AskError, node: _Node) -> Place:
    """Return the place that a redirection names; without a host it is the one that was asked."""
    host, port = cast("tuple[str, int]", error.node_addr)
    return host or node.place[0], port


def _slot(words: Words) -> int:
    """Return the slot of a command's first key; a script has its keys after their number.

    Any node publishes; it is the same one for each channel, so that the words on it keep their order.
    """
    if words[0] == b"EVALSHA":
        return key_slot(words[3])
    return key_slot(words[1]) if len(words) > 1 else 0


def _place(row: list[Reply], asked: Place) -> Place:
    """Return the place of a node; one that does not know its own address is where it was asked."""
    host, port = cast(bytes | None, row[0]), cast(int, row[1])
    return (host.decode() if host and host != b"?" else asked[0]), port
