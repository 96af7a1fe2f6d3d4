"""Benchmark of each kernel of a network: `python -m experiments.bench suite=profile profile.names=[resnet50]`.

Each network is compiled, verified and timed in its own process. The results are a line for each kernel, one for the whole
network, and a table that groups equal kernels, sorted by the time that they take beyond their roofline floor. `profile.below=0.7`
leaves out kernels whose floor is at least 0.7 of their time. conf/bench.yaml explains the settings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_positive, check_whole
from agents.networks import CompiledNetwork
from agents.runs.sheets.cells import percent, seconds
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.race import Lost, Side
from experiments.benches.lines import Lines, Steal, machine
from experiments.benches.networks.suite import MODULE, checked_names
from experiments.comparison.summary import interval
from gensor_gym.codegen.runtime.arrays import in_library_of
from gensor_gym.cost.roofline import arithmetic_seconds, bandwidth_of
from gensor_gym.dataflow.expressions import INT8
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.stamped import StampedNetwork
from gensor_gym.networks.steps import Step
from gensor_gym.registry import check_known

# Profile of a network: every kernel in context and alone, with its floors.
#
# In context, a kernel runs in calls of the whole network, with its own weights and the caches that the previous kernel left;
# its time is the median over calls. Alone, it is called repeatedly on memory that only it uses. Times alone do not add up to
# the network's time.

SETTLE = 3
"""Number of untimed calls of the network before the timed calls."""
TURN = 10e-3
"""Seconds for which a kernel is called repeatedly to time it alone."""
PRIVATE = ("l1", "l2")
"""Names of the caches that each core has for itself."""


def profile(found: CompiledNetwork, inputs: Sequence[Any], calls: int) -> dict[str, Any]:
    """Time every kernel of a compiled network in calls of the network and alone; return `steps`, `whole` and `outputs`.

    `steps` has a row for each kernel in the order of execution. `whole` has the times of alternating calls with and without a
    clock between kernels, and the sums of the kernels' times alone and of their floors. `outputs` are the network's outputs in
    the last call with a clock, in the library of the first input.
    """
    function = found.function
    assert isinstance(function, NetworkFunction), "profiles are of CPUs"
    stamped = StampedNetwork(found.plan, found.kernels, function, inputs, found.hardware.units)
    bound = function.bind(*inputs)
    stamped.in_context(SETTLE)
    passes, plain = [], []
    for _ in range(calls):
        passes.append(stamped.in_context(1)[0])
        begin = time.perf_counter()
        bound()
        plain.append(time.perf_counter() - begin)
    outputs = in_library_of(inputs[0], tuple(one.copy() for one in stamped.outputs))
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
    """Return a row for each kernel of a network with its times and floors.

    `passes` are the kernels' seconds in calls of the whole network, [calls, kernels]; `alone` are their seconds when called
    alone.
    """
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
    """Return two lower bounds on a kernel's seconds in consecutive calls: operations at peak rate, and transfer of its bytes.

    Constants are read once per call, so they come from the memory level that can contain all constants of the network. Other
    values were just computed: as many as fit are in the nearest cache, the remaining bytes in the levels behind it. Both
    transfers may overlap, so the longer counts.
    """
    sizes = {value.name: value.nbytes for value in network.graph.values.values()}
    constant = sum(sizes[name] for name in {*step.reads} if name in network.constants)
    moving = sum(sizes[name] for name in {*step.reads, *step.writes} if name not in network.constants)
    every = sum(array.nbytes for array in network.constants.values())
    return {
        "flops_floor_s": arithmetic_seconds(step.computation, hw),
        "bytes_floor_s": max(constant / bandwidth_of(every, hw), _moved(moving, hw)),
    }


def _moved(size: int, hw: Hardware) -> float:
    """Return the seconds to move `size` bytes if each memory level, beginning with the nearest, holds as many as fit."""
    seconds, left = 0.0, size
    for level in hw.memory[1:]:
        here = min(left, level.capacity * (hw.units if level.name in PRIVATE else 1))
        seconds, left = seconds + here / level.bandwidth, left - here
    return seconds


def of_floor(row: Mapping[str, Any]) -> float:
    """Return the larger of a kernel's two floors divided by the kernel's time in calls of the network.

    `row` is one of the rows of `by_kernel`.
    """
    return float(max(row["flops_floor_s"], row["bytes_floor_s"]) / row["in_context_s"])


def name_of(network: Network, piece: Sequence[str]) -> str:
    """Name a fused piece of a network by its first operation, and count the further operations, as in `conv1 +2`.

    Operations have the names of the torch module.
    """
    first = network.origins.get(piece[0], piece[0])
    more = len({network.origins.get(name, name) for name in piece} - {first})
    return f"{first} +{more}" if more else first


def by_kernel(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum the rows of kernels with equal computations; the sum with the longest time above its roofline floors is first."""
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
    return sorted(found, key=lambda row: -row["in_context_s"] * (1 - of_floor(row)))


def run(config: DictConfig, emit: Lines) -> None:
    """Profile each network that the configuration names: emit its lines and show its table."""
    settings, folder = config.profile, Path(config.output)
    names = checked_names(settings, "profile")
    check_known("profile.dtype", settings.dtype, ("float32", *HALVES, INT8))
    check_whole(settings, 1, "trials", "calls", "batch", "threads", of="profile.", null=("threads",))
    if settings.below is not None:
        check_positive(settings, "below", of="profile.")
    threads = settings.threads or usable_cores()
    emit(kind="machine", threads=threads, calls=settings.calls, **machine())
    for name in names:
        row: dict[str, Any] = {"network": name, "batch": settings.batch, "threads": threads, "plan": settings.plan}
        row |= {"dtype": settings.dtype} if settings.dtype != "float32" else {}
        asked = {key: settings[key] for key in ("plan", "batch", "trials", "calls", "arena", "dtype")}
        steal = Steal()
        try:
            found = _profiled({**asked, "network": name, "threads": threads, "seed": config.seed}, settings.limit_s, folder)
        except Lost as error:
            emit(kind="network", **row, error=str(error))
            continue
        steps = found.pop("steps")
        emit(kind="network", **row, **found, stolen=steal.share())
        for step in steps:
            emit(kind="step", network=name, threads=threads, **step)
        sheet(name, steps, found, settings.below).show(Console())


def _profiled(asked: dict[str, Any], limit: float, cache: Path) -> dict[str, Any]:
    """Profile one network in its own process; raise Lost if it fails, takes too long or returns wrong outputs."""
    with closing(Side("profiled", asked["threads"], cache, MODULE)) as side:
        side.hear(limit)
        answer = side.ask(asked, limit)
    if wrong := answer.pop("wrong"):
        raise Lost(f"our outputs are wrong: {wrong}")
    del answer["ways"]
    return answer


def sheet(name: str, steps: list[dict[str, Any]], whole: dict[str, Any], below: float | None = None) -> Sheet:
    """Return a table of a network's kernels, in which equal kernels share a row.

    Kernels whose floor is at least `below` of their time are left out.
    """
    head = ("kernel", "times", "share", "in context", "of floor", "alone", "floor by flops", "floor by bytes", "first")
    rows = [
        (row["computation"], str(row["times"]), percent(row["share"]), seconds(row["in_context_s"]), percent(of_floor(row)),
         seconds(row["isolated_s"]), seconds(row["flops_floor_s"]), seconds(row["bytes_floor_s"]), row["first"])
        for row in by_kernel(steps) if below is None or of_floor(row) < below
    ]  # fmt: skip
    found = [seconds(whole[key]["median"]).text for key in ("in_context_s", "plain_s")]
    sums = [seconds(whole[key]).text for key in ("sum_of_isolated_s", "sum_of_floors_s")]
    notes = [
        f"a call takes {found[0]} with the clock between kernels, {found[1]} without",
        f"kernels alone add up to {sums[0]}, floors to {sums[1]}: these are no times of a network",
    ]
    return Sheet.of(f"{name}: kernels by the seconds beyond their floor", head, rows, notes)
