"""Plans by rule, by name."""

from __future__ import annotations

from collections.abc import Callable

from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.coarse import fine_coarse
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.registry import near

PLANS: dict[str, Callable[[Network, Hardware], Plan]] = {
    "cut_all": lambda network, _: cut_all(network), "fine": lambda network, _: fine(network), "fine_coarse": fine_coarse,
}  # fmt: skip
"""Plans by rule, of a network for a machine."""


def plan_of(network: Network, rule: Callable[[Network], Plan] | str, machine: Hardware | None = None) -> Plan:
    """The plan of a rule, or of the rule of that name for a machine, or for this host; ValueError names those there are."""
    if callable(rule):
        return rule(network)
    if rule not in PLANS:
        raise ValueError(f"plan {rule!r}: expected one of {', '.join(PLANS)}{near(rule, PLANS)}")
    return PLANS[rule](network, machine or hardware.get("host"))
