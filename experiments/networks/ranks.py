"""Plans of one network by their rank in the model's order, timed in turn, as one line of JSON.

`python -m experiments.networks.ranks NETWORK TRIALS ROUNDS` is a process of its own, with $GENSOR_GYM_THREADS threads.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from agents.networks import CompiledNetwork, compile_network
from agents.planning.searches import ways
from experiments.networks import attention, convolutional
from experiments.networks.suite import SUITE, Workload, as_used, drawn
from gensor_gym import hardware
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import FusedDraw
from gensor_gym.measure.stats.timing import TimingRules, calls_per_sample, sample, warm_up
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.best import ranked
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.prices import Prices
from gensor_gym.networks.network import Network
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.networks.plan import Plan
from gensor_gym.networks.planning.drawn import drawn as drawn_graph
from gensor_gym.networks.planning.drawn import network_of
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.operators.inputs import random_inputs

RANKS = (1, 10, 100)
"""Ranks of the timed plans by the model; 1 is the optimum."""
RANDOM = 2
"""Number of timed plans of random decisions."""


@dataclass(frozen=True)
class Case:
    """A network of the suite with a batch size."""

    workload: Workload
    batch: int = 1


NETWORKS: Mapping[str, Case | str] = {
    "mlp_1": Case(SUITE["mlp_1"], 32), "mlp_2": Case(SUITE["mlp_2"], 32),
    "mha_1": Case(SUITE["mha_1"]), "mha_2": Case(SUITE["mha_2"]),
    "patches": Case(SUITE["patches"]), "patch_merging": Case(SUITE["patch_merging"]),
    "mobilenet_v2_96": Case(Workload(convolutional.mobilenet_v2, ((3, 96, 96),))),
    "bert_2_layers": Case(Workload(lambda: attention.bert(2), ((128, 768),))),
    "attending(seed=10)": "attending(seed=10)", "normed(seed=1)": "normed(seed=1)", "gated(seed=0)": "gated(seed=0)",
}  # fmt: skip
"""Networks of the suite, of MobileNetV2 for small images, of BERT with two layers, and random ones."""


def network_named(name: str, hw: Hardware, seed: int = 0) -> Network:
    """A network of NETWORKS as it is planned."""
    import torch

    from gensor_gym.frontends.torch_export import from_torch

    case = NETWORKS[name]
    if isinstance(case, str):
        graph = drawn_graph(case)
        assert graph is not None
        return folded(network_of(graph, seed))
    torch.manual_seed(seed)
    inputs = drawn(case.workload.inputs, case.batch, seed)
    return ordered(folded(from_torch(as_used(case.workload.build()), inputs)), hw)


def plans_of(network: Network, hw: Hardware) -> dict[str, Plan]:
    """Name -> plan: `fine`, by rank, and random ones; a rank that does not exist is missing."""
    graph = PlanGraph(network, hw)
    order = list(islice(ranked(network, hw, graph.of, graph.prices), RANKS[-1]))
    found = {"fine": fine(network, hw)} | {f"rank {rank}": order[rank - 1].plan for rank in RANKS if rank <= len(order)}
    for seed in range(RANDOM):
        state, rng = graph.first, np.random.default_rng(seed)
        while some := ways(state):
            state = graph.after(state, int(rng.choice(some)))
        found[f"random {seed}"] = graph.plan_of(state)
    return found


def timed(name: str, trials: int, rounds: int) -> dict[str, Any]:
    """Row of a network: seconds by the model and samples in seconds of each plan, and of each kernel in the first plans."""
    begin, hw = time.monotonic(), hardware.get("host")
    network = network_named(name, hw)
    plans = plans_of(network, hw)
    distinct = {str(plan): plan for plan in plans.values()}
    prices = Prices(network, hw)
    compiled = {text: _compiled(network, text, trials) for text in distinct}
    rng = np.random.default_rng(0)
    given = dict(zip((value.name for value in network.graph.inputs), random_inputs(network.graph, rng), strict=True))
    inputs = tuple(given[value.name] for value in network.inputs)
    draw = FusedDraw(inputs, network.reference(*inputs))
    faults = {text: fault for text, one in compiled.items() if (fault := draw.fault(one.function(*inputs)))}
    functions: dict[str, Any] = {text: one.function for text, one in compiled.items()}
    calls = {text: _timer(function.bind(*inputs)) for text, function in functions.items()}
    samples = interleaved(calls, rounds)
    return {
        "network": name, "threads": hw.units, "nodes": len(PlanGraph(network, hw).of.names), "faults": faults,
        "plans": {key: {"text": str(plan), "predicted_s": prices.total(plan.pieces)} for key, plan in plans.items()},
        "samples": samples, "pieces": _pieces(compiled, prices), "seconds": time.monotonic() - begin,
    }  # fmt: skip


def _compiled(network: Network, text: str, trials: int) -> CompiledNetwork:
    return compile_network(network, plan=lambda given: Plan.parse(given, text), trials=trials)


def _pieces(compiled: Mapping[str, CompiledNetwork], prices: Prices) -> dict[str, tuple[float, float]]:
    """Text of a piece -> (seconds by the model, measured seconds of its kernel alone)."""
    return {
        str(piece): (prices.of(piece), result.seconds)
        for one in compiled.values() for piece, result in zip(one.plan.pieces, one.results, strict=True)
    }  # fmt: skip


def _timer(bound: Callable[[], Any]) -> Callable[[int], float]:
    def timer(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            bound()
        return time.perf_counter() - begin

    return timer


def interleaved(calls: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds per call of each function, one sample in each round, in an order that turns from round to round."""
    rules = TimingRules()
    counts = {name: calls_per_sample(warm_up(timer, rules), rules) for name, timer in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            found[name].append(sample(calls[name], counts[name]))
    return found


if __name__ == "__main__":
    print(json.dumps(timed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
