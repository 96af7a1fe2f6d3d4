"""A cache of the plans that rules make: a network that is planned again is looked up, and its plan is checked.

The user's cache has texts of plans under a hash of the graph, the origins of its nodes, the names of its constants, the name of
the rule, the machine and the sources of this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from gensor_gym.cache.folders import private_dir
from gensor_gym.cache.owned import read_own
from gensor_gym.codegen.remembered import sources
from gensor_gym.files import write_whole
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan

FOLDER = "plans"


def remembered_plan(network: Network, name: str, rule: Callable[[Network, Hardware], Plan], machine: Hardware) -> Plan:
    """Return a network's plan by the rule `name`: read from the cache if legal, else computed by `rule` and stored."""
    path = private_dir(FOLDER) / f"{_key(network, name, machine)}.txt"
    try:
        known = Plan.parse(network, read_own(path).decode())
    except ValueError:  # it is missing, or cannot be parsed
        known = None
    if known is not None and not known.fault:
        return known
    made = rule(network, machine)
    if not made.fault:
        write_whole(path, str(made).encode(), 0o600)
    return made


def _key(network: Network, name: str, machine: Hardware) -> str:
    """Return a hash of all that a plan depends on: package, rule, machine, graph, origins of nodes, names of constants."""
    parts = [sources(), name, repr(machine), network.graph.digest, repr(network.origins), repr(sorted(network.constants))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
