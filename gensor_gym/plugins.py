"""Plugins: installed packages that register entries. A plugin is loaded only if a run names it.

A package names a module in the entry points `gensor_gym.plugins`; importing it registers operators, machines, backends,
strategies and tables by their decorators. There are three ways to load a plugin: `load_plugins("NAME")` in Python,
`plugins=[NAME]` in a command of `experiments`, and the variable `$GENSOR_GYM_PLUGINS` (names separated by commas). Loading sets
the variable, so that child processes started later load the same plugins.
"""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint, entry_points

GROUP = "gensor_gym.plugins"
VARIABLE = "GENSOR_GYM_PLUGINS"
_loaded: dict[str, str] = {}


def load_plugins(*names: str) -> None:
    """Load plugins by the names of their entry points, each once.

    ValueError if no installed package or several packages have the name, or if a plugin registers a name that is taken.
    """
    for name in names:
        if name not in _loaded:
            point = _installed(name)
            point.load()
            _loaded[name] = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    if _loaded:
        os.environ[VARIABLE] = ",".join(_loaded)


def load_named() -> None:
    """Load the plugins named in `$GENSOR_GYM_PLUGINS`. A worker process inherits the variable from its run."""
    load_plugins(*filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))))


def loaded() -> dict[str, str]:
    """Return package and version of every loaded plugin, by the plugin's name."""
    return dict(_loaded)


def _installed(name: str) -> EntryPoint:
    """Return the entry point of a plugin's name. ValueError if no installed package or several packages have it."""
    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == name]
    if not found:
        raise ValueError(f"no plugin {name!r}; installed are {', '.join(sorted({point.name for point in points})) or 'none'}")
    if len({point.value for point in found}) > 1:
        owners = ", ".join(sorted(point.dist.name if point.dist else point.value for point in found))
        raise ValueError(f"plugin {name!r} is in several packages: {owners}; uninstall all but one")
    return found[0]
