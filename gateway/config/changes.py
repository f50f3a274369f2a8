"""What of a new configuration can be taken while the gateway serves, and what needs a start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.model import Config
from gateway.config.slice import Slice

Place = tuple[str, ...]

# Everything else is built into sockets, into the store or into what clients hold.
LIVE: Final[frozenset[Place]] = frozenset(
    {
        ("upstreams",),
        ("listen", "allowed_origins"),
        ("listen", "allowed_hosts"),
        ("limits", "tasks_per_scope"),
        ("limits", "stored_tasks_per_scope"),
        ("limits", "anonymous_tasks"),
        ("limits", "request_bytes"),
        ("limits", "rates"),
        ("drain",),
        ("drain_delay",),
        ("log",),
    }
)


def needs_start(old: Config, new: Config) -> list[str]:
    """Return the options that differ and cannot be taken while the gateway serves, as dotted names."""
    return sorted(".".join(place) for place in _changed(old, new, ()))


def changed_upstreams(old: Config, new: Config) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the upstreams that are added, changed and removed."""
    added = [name for name in new.upstreams if name not in old.upstreams]
    removed = [name for name in old.upstreams if name not in new.upstreams]
    changed = [
        name
        for name, upstream in new.upstreams.items()
        if name in old.upstreams and upstream != old.upstreams[name]
    ]
    return added, changed, removed


def _changed(old: Slice, new: Slice, place: Place) -> Iterator[Place]:
    for name in type(old).model_fields:
        here = (*place, name)
        before, after = getattr(old, name), getattr(new, name)
        if here in LIVE or before == after:
            continue
        if isinstance(before, Slice) and type(before) is type(after):
            yield from _changed(before, after, here)
        else:
            yield here
