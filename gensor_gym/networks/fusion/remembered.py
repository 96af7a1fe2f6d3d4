"""A cache of the plans that rules make: a network that is planned again is looked up, and its plan is checked.

The user's cache has texts of plans under a hash of the graph, the origins of its nodes, the names of its constants, the name of
the rule, the machine and the sources of this package.
"""

from __future__ import annotations

from collections.abc import Callable

from gensor_gym.cache.sources import sources
from gensor_gym.cache.texts import kept
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan

FOLDER = "plans"


def remembered_plan(network: Network, name: str, rule: Callable[[Network, Hardware], Plan], machine: Hardware) -> Plan:
    """Return a network's plan by the rule `name`: read from the cache if legal, else computed by `rule` and stored."""

    def read(text: str) -> Plan:
        known = Plan.parse(network, text)
        if known.fault:
            raise ValueError(known.fault)
        return known

    return kept(FOLDER, _depends(network, name, machine), read, lambda: rule(network, machine))


def _depends(network: Network, name: str, machine: Hardware) -> list[str]:
    """Return all that a plan depends on: package, rule, machine, graph, origins of nodes, names of constants."""
    return [sources(), name, repr(machine), network.graph.digest, repr(network.origins), repr(sorted(network.constants))]
