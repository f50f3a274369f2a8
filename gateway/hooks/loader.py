"""From names in the configuration to plugins, through the entry points of installed distributions.

The house's own plugins come through the same door, so that the door is known to work.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from gateway.hooks.port import Plugin
from gateway.protocol.errors import PluginError

GROUP: Final = "mcp_task_gateway.plugins"


def load(wanted: Iterable[tuple[str, dict[str, Any]]]) -> list[Plugin]:
    """Construct the plugins in the order given: each a name and its options.

    The same name may come several times. Nothing is validated or started yet. Raises `PluginError`
    where a name is unknown or its plugin cannot be imported or constructed.
    """
    doors = entry_points(group=GROUP)
    return [_construct(_find(tuple(doors), name), options) for name, options in wanted]


def known() -> list[str]:
    """Return the names of the plugins that are installed."""
    return sorted(entry_points(group=GROUP).names)


def _find(doors: tuple[EntryPoint, ...], name: str) -> EntryPoint:
    """Return the entry point called `name`; two different ones of a name are nobody's to choose from."""
    found = {door.value: door for door in doors if door.name == name}
    if not found:
        names = ", ".join(sorted({door.name for door in doors})) or "none is installed"
        raise PluginError(f"there is no plugin called {name!r}; known: {names}")
    if len(found) > 1:
        raise PluginError(f"several plugins are called {name!r}: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _construct(door: EntryPoint, options: dict[str, Any]) -> Plugin:
    """Import the plugin behind `door` and give it its options."""
    try:
        kind = cast("object", door.load())
    except Exception as error:
        raise PluginError(f"plugin {door.name!r} ({door.value}) cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Plugin)):
        raise PluginError(f"plugin {door.name!r} ({door.value}) is not a gateway.hooks.port.Plugin")
    try:
        return kind(options)
    except Exception as error:
        raise PluginError(f"plugin {door.name!r} cannot be constructed: {error}") from error
