"""One search for the kernels of several networks within one budget of trials, with a rule that distributes them.

`python -m experiments.benches.tuning.scheduled search RULE SEED TRIALS STORE` searches and keeps its trials in the file STORE.
`python -m experiments.benches.tuning.scheduled race ROUNDS STORE..` times the networks of several searches in turn. Both are
processes of their own, with $GENSOR_GYM_THREADS threads, and write one line of JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agents.ansor.task_scheduler import GradientScheduler, Progress, RoundRobin, Scheduler, geometric_speedup, total_latency
from agents.modules import compile_module
from agents.optimizer import Asked
from agents.pieces import Piece, spend
from experiments.benches.networks.process import expected_of, fault_of
from experiments.benches.tuning.suite import Recorder, in_turns
from experiments.networks.suite import inputs_of, module_of
from gensor_gym import hardware
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.records.store import Store
from gensor_gym.networks.folding import folded
from gensor_gym.networks.fusion.rules import plan_of
from gensor_gym.networks.load import NetworkFunction
from gensor_gym.networks.orders.rewrite import ordered
from gensor_gym.operators.types import Operator

NETWORKS = ("mobilenet_v2", "resnet50", "bert")
BATCH = 2
"""Trials of a batch of Ansor's schedulers. With the authors' 64, the first batch of each task alone takes 4,000 trials."""
MOST = 64
"""Maximum number of trials of a task."""
Rule = tuple[Callable[[np.ndarray], Scheduler], int | None]
RULES: dict[str, Rule] = {
    "ours": (lambda counts: GradientScheduler(total_latency(counts)), None),
    "gradient": (lambda counts: GradientScheduler(total_latency(counts)), BATCH),
    "gradient_f3": (lambda counts: GradientScheduler(geometric_speedup(counts, np.ones(len(counts)))), BATCH),
    "round_robin": (lambda counts: RoundRobin(total_latency(counts)), BATCH),
}
"""Rule -> (scheduler for the numbers of appearances [networks, tasks], trials of a batch; None doubles a task's trials).

`ours` is the rule of `gensor_gym.compile(seconds=..)`. The baselines of objective f3 only scale it, so they are ones.
"""


@dataclass
class Limited:
    """A scheduler that ends when all tasks together have had `trials` trials."""

    scheduler: Scheduler
    trials: int

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Return the index of the chosen task; None at the end, or if no task may get more."""
        over = sum(task.trials for task in tasks) >= self.trials
        return None if over else self.scheduler.choose(tasks, rng)


def counts_of(name: str, hw: Hardware) -> Counter[Operator | Dataflow]:
    """Return how often each computation occurs in a network's plan `fine`."""
    from gensor_gym.frontends.torch_export import from_torch

    plan = plan_of(ordered(folded(from_torch(module_of(name), inputs_of(name))), hw), "fine", hw)
    return Counter(step.computation for step in plan.steps)


def searched(rule: str, seed: int, trials: int, store: str) -> dict[str, Any]:
    """Search all computations of NETWORKS by a rule, and return `counts` for each network and the `trials`.

    A trial is [seconds since the begin, number of the computation, seconds of the kernel].
    """
    hw = hardware.get("host")
    every = {name: counts_of(name, hw) for name in NETWORKS}
    total: Counter[Operator | Dataflow] = sum(every.values(), Counter())
    recorder = Recorder()
    opened = Store(store)
    asked = [Asked.of(one, hw, store=opened, on_trial=recorder.on_trial) for one in total]
    pieces = [Piece.of(one, count, seed) for one, count in zip(asked, total.values(), strict=True)]
    pieces.sort(key=lambda piece: -piece.share)
    order = [piece.asked.task.operator for piece in pieces]
    table = np.array([[counts[one] for one in order] for counts in every.values()])
    make, batch = RULES[rule]
    scheduler = Limited(make(table), trials)
    recorder.begin = time.perf_counter()
    spend(pieces, scheduler, MOST, math.inf, np.random.default_rng(seed), recorder.on_task, batch)
    for piece in pieces:
        piece.end(rounds=0)
    numbers = {piece.name: number for number, piece in enumerate(pieces)}
    rows = [[trial.at, numbers[trial.computation], trial.seconds] for trial in recorder.trials]
    return {"rule": rule, "seed": seed, "networks": NETWORKS, "counts": table.tolist(), "trials": rows}


@torch.no_grad()
def raced(stores: Sequence[str], rounds: int) -> dict[str, Any]:
    """Build every network of the kernels of each search, and time them in turn; return seconds by network, [stores, rounds].

    RuntimeError if outputs are wrong.
    """
    found: dict[str, list[list[float]]] = {}
    for name in NETWORKS:
        module, inputs = module_of(name), inputs_of(name)
        expected, calls = expected_of(module_of(name).double(), inputs), []
        for store in stores:
            function = compile_module(module, inputs, trials=1, store=store).function
            assert isinstance(function, NetworkFunction), "these searches are of a CPU"
            call = function.bind(*(one.numpy() for one in inputs))
            if fault := fault_of(call(), expected):
                raise RuntimeError(f"{name} by {store}: {fault}")
            calls.append(call)
        found[name] = in_turns(calls, rounds)
    return found


if __name__ == "__main__":
    verb, first, *rest = sys.argv[1:]
    made = raced(rest, int(first)) if verb == "race" else searched(first, int(rest[0]), int(rest[1]), rest[2])
    print(json.dumps(made))
