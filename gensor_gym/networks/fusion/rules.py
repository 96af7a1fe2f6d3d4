"""The rules that make plans, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.best import best_plan
from gensor_gym.networks.fusion.coarse import fine_coarse
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.remembered import remembered_plan
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.registry import near

PLANS: dict[str, Callable[[Network, Hardware], Plan]] = {
    "cut_all": lambda network, _: cut_all(network),
    "fine": fine,
    "fine_coarse": lambda network, machine: (fine_coarse if machine.kind == "cpu" else fine)(network, machine),
    "best": best_plan,
}
"""Name of a rule -> function that plans a network for a machine. Loops of several pieces have kernels on CPUs only."""


def check_rule(rule: Any) -> None:
    """Check that a rule is a function or the name of a known rule; ValueError if not."""
    if not callable(rule) and not (isinstance(rule, str) and rule in PLANS):
        wanted = f"one of {', '.join(PLANS)}, or a function from a network to its plan"
        raise ValueError(f"plan {rule!r}: expected {wanted}{near(rule, PLANS)}")


def plan_of(network: Network, rule: Callable[[Network], Plan] | str, machine: Hardware | None = None) -> Plan:
    """Plan a network by a rule or a named rule, for a machine or this host.

    ValueError for an unknown name, or if the rule does not return a plan of the network.
    """
    check_rule(rule)
    if isinstance(rule, str):
        plan = remembered_plan(network, rule, PLANS[rule], machine or hardware.get("host"))
    else:
        plan = rule(network)
    if not isinstance(plan, Plan) or plan.network is not network:
        said = f"a plan of another network, {plan.network}" if isinstance(plan, Plan) else repr(plan)
        raise ValueError(f"the rule {getattr(rule, '__name__', rule)} gave {said}: expected a Plan of {network}")
    return plan
