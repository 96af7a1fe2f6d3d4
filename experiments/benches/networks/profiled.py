"""Profile of a network: every kernel in context and alone, with its floors.

In context: in calls of the whole network, each with its own weights and the caches of the kernel before; the median over calls.
Alone: the kernel called repeatedly on the same memory, which only it uses. Times alone do not add up to the network's time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.networks import CompiledNetwork
from experiments.comparison.summary import interval
from gensor_gym.cost.roofline import bandwidth_of, peak_rate
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.stamped import StampedNetwork
from gensor_gym.networks.steps import Step

SETTLE = 3
"""Calls of the network before those that count."""
TURN = 10e-3
"""Seconds of calls of a kernel alone that count."""
PRIVATE = ("l1", "l2")
"""Caches that every core has for itself."""


def profile(found: CompiledNetwork, inputs: Sequence[np.ndarray], calls: int) -> dict[str, Any]:
    """`steps`, a row for each kernel in its order, and seconds of the whole: stamped, `plain` without clock, and the alone's sum.

    Stamped and plain calls take turns. `outputs` are those of the last stamped one.
    """
    stamped = StampedNetwork(found.plan, found.kernels, found.function, inputs, found.hardware.units)
    bound = found.function.bind(*inputs)
    stamped.in_context(SETTLE)
    passes, plain = [], []
    for _ in range(calls):
        passes.append(stamped.in_context(1)[0])
        begin = time.perf_counter()
        bound()
        plain.append(time.perf_counter() - begin)
    outputs = [one.copy() for one in stamped.outputs]
    alone = stamped.isolated(TURN)
    rows = rows_of(found.plan, found.hardware, np.array(passes), [float(np.median(one)) for one in alone])
    rows = [{**row, "schedule": str(result.schedule)} for row, result in zip(rows, found.results, strict=True)]
    whole = {
        "in_context_s": interval([float(one.sum()) for one in passes]), "plain_s": interval(plain),
        "sum_of_isolated_s": sum(row["isolated_s"] for row in rows),
        "sum_of_floors_s": sum(max(row["flops_floor_s"], row["bytes_floor_s"]) for row in rows),
    }
    return {"steps": rows, "whole": whole, "outputs": outputs}


def rows_of(plan: Plan, hw: Hardware, passes: np.ndarray, alone: Sequence[float]) -> list[dict[str, Any]]:
    """A row for each step: `passes` are seconds in context [calls, steps], `alone` of each step."""
    shares = np.median(passes / passes.sum(axis=1, keepdims=True), axis=0)
    return [
        {
            "step": number, "piece": name_of(plan.network, plan.pieces[number].nodes),
            "computation": str(step.computation).strip(),
            "in_context_s": interval([float(one) for one in passes[:, number]]), "isolated_s": alone[number],
            **floors(plan.network, step, hw), "share": float(shares[number]),
        }
        for number, step in enumerate(plan.steps)
    ]  # fmt: skip


def floors(network: Network, step: Step, hw: Hardware) -> dict[str, float]:
    """Seconds that no kernel of the step beats in calls one after another: its operations at peak, and its bytes.

    Constants are read once in a call, so they come from the level that holds all of the network's. Values were made just before:
    as many of them as fit lie in the nearest cache, and so on outwards. Both may move at the same time: the longer counts.
    """
    sizes = {value.name: value.nbytes for value in network.graph.values.values()}
    constant = sum(sizes[name] for name in {*step.reads} if name in network.constants)
    moving = sum(sizes[name] for name in {*step.reads, *step.writes} if name not in network.constants)
    every = sum(array.nbytes for array in network.constants.values())
    return {
        "flops_floor_s": step.computation.flops / peak_rate(step.computation, hw),
        "bytes_floor_s": max(constant / bandwidth_of(every, hw), _moved(moving, hw)),
    }


def _moved(size: int, hw: Hardware) -> float:
    """Seconds of bytes that lie as near as they can."""
    seconds, left = 0.0, size
    for level in hw.memory[1:]:
        here = min(left, level.capacity * (hw.units if level.name in PRIVATE else 1))
        seconds, left = seconds + here / level.bandwidth, left - here
    return seconds


def name_of(network: Network, piece: Sequence[str]) -> str:
    """The module's name of a piece's first operation, and the number of further nodes."""
    first = network.origins.get(piece[0], piece[0])
    more = len({network.origins.get(name, name) for name in piece} - {first})
    return f"{first} +{more}" if more else first


def by_kernel(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Equal computations together, that with the largest share first: how often, seconds of all of them, share of the network."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["computation"], []).append(row)
    found = [
        {
            "computation": text, "times": len(same), "first": same[0]["piece"], "share": sum(row["share"] for row in same),
            "in_context_s": sum(row["in_context_s"]["median"] for row in same),
            **{name: sum(row[name] for row in same) for name in ("isolated_s", "flops_floor_s", "bytes_floor_s")},
        }
        for text, same in groups.items()
    ]  # fmt: skip
    return sorted(found, key=lambda row: -row["in_context_s"])
