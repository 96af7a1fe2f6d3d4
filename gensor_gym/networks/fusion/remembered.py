"""Cached plans of rules: a network that is planned again is looked up, and its plan is checked.

The user's cache holds texts under a hash of the graph, the origins of its nodes, its constants, the name of the rule, the machine
and the sources of this package.
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
    """The named rule's plan of a network for a machine: read if it is stored and legal, else computed and stored."""
    path = private_dir(FOLDER) / f"{_key(network, name, machine)}.txt"
    try:
        known = Plan.parse(network, read_own(path).decode())
    except ValueError:  # there is none, or it is no plan
        known = None
    if known is not None and not known.fault:
        return known
    made = rule(network, machine)
    if not made.fault:
        write_whole(path, str(made).encode(), 0o600)
    return made


def _key(network: Network, name: str, machine: Hardware) -> str:
    """Everything that a plan depends on: graph, origins of nodes, constant values, and the machine."""
    parts = [sources(), name, repr(machine), network.graph.digest, repr(network.origins), repr(sorted(network.constants))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
