"""What the tests of graph and environment share: operators of every kind, and walks over legal schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from gensor_gym import ConstructionGraph
from gensor_gym.graph.matrices.choices import instruction_k
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import matrix_axes
from gensor_gym.graph.tables.layout import ROW, slot_of
from tests.support.oracle import Oracle

OPERATORS = (
    "gemm(m=64, n=48, k=40)",
    'gemm(m=33, n=65, k=129, dtype="int8")',
    "gemm(m=4096, n=4096, k=1024)+bias+relu",
    'gemm(m=256, n=512, k=128, dtype="bfloat16")',
    'conv2d(n=1, c=32, h=10, w=12, k=32, r=3, s=3, padding=1, dtype="float16")',
    "batched_gemm(b=3, m=16, n=40, k=24)",
    "gemv(m=100, k=333)",
    "conv2d(n=2, c=8, h=14, w=14, k=32, r=3, s=3, padding=1)",
    "conv2d(n=1, c=4, h=15, w=13, k=6, r=3, s=2, stride=2, padding=(1, 0), dilation=(1, 2), groups=2)",
    "depthwise_conv2d(n=2, c=6, h=20, w=20, r=3, s=3, stride=2, padding=1)",
    "avg_pool2d(n=2, c=5, h=13, w=13, r=3, s=3, stride=2, padding=1)",
    "max_pool2d(n=2, c=8, h=12, w=12, r=2, s=2, stride=2, padding=0)",
    "reduce_sum(m=64, k=4000)",
    'elementwise("relu", 64, 1000)',
    'elementwise("add", 3, 5)',
)
MACHINES = ("h200", "t4", "cascade_lake", "host")
SPACES = ("gensor", "tree", "gensor_no_vthread", "extended", "medium", "compact")


@cache
def graph_of(operator: str, machine: str, space: str) -> ConstructionGraph:
    return ConstructionGraph(operator, machine, space=space)


TENSOR = (
    'gemm(m=256, n=512, k=128, dtype="bfloat16")',
    'batched_gemm(b=3, m=72, n=40, k=64, dtype="float16")',
    'gemm(m=64, n=48, k=40, dtype="int8")',
    'conv2d(n=1, c=32, h=10, w=12, k=32, r=3, s=3, padding=1, dtype="float16")',
    'conv2d(n=3, c=72, h=9, w=24, k=130, r=3, s=2, padding=1, stride=2, dtype="bfloat16")',
    'conv2d(n=3, c=72, h=9, w=24, k=130, r=1, s=1, dtype="float16")',
    'gemm(m=200, n=100, k=256, dtype="int8")',
    'gemm(m=136, n=75, k=84, dtype="tf32")',
    'batched_gemm(b=2, m=72, n=40, k=96, dtype="tf32")',
    'gemm(m=24, n=80, k=136, dtype="bfloat16")',
    'conv2d(n=6, c=72, h=8, w=7, k=40, r=1, s=1, dtype="float16")',
    'conv2d(n=2, c=20, h=9, w=24, k=72, r=3, s=2, padding=1, dtype="tf32")',
    'conv2d(n=6, c=70, h=9, w=9, k=72, r=3, s=3, dtype="int8")',
    'conv2d(n=3, c=3, h=19, w=24, k=64, r=5, s=5, stride=2, dtype="float16")',
)
"""Products with tensor-core programs, of which random walks from the start find hardly any."""


def moved(graph: ConstructionGraph, schedule: Schedule, action: str) -> Schedule | None:
    """The successor by an action, None where it is illegal."""
    after = graph.transition(schedule, [str(a) for a in graph.actions].index(action))
    return None if after == schedule else after


def climbed(graph: ConstructionGraph, schedule: Schedule, action: str, done: Callable[[Schedule], bool]) -> Schedule:
    """The same action until `done`; every step must be legal."""
    while not done(schedule):
        after = moved(graph, schedule, action)
        assert after is not None, f"{action} is illegal at {schedule}"
        schedule = after
    return schedule


def tensor_start(graph: ConstructionGraph) -> Schedule:
    """The smallest mma.sync program, by single legal moves from the unscheduled program."""
    roles = matrix_axes(graph.operator)
    step = instruction_k(graph.operator, graph.hardware, 1)
    schedule = climbed(graph, graph.initial(), "lower[unroll]", lambda s: s.knob("unroll") == 1)
    for axis, length in ((roles.m, 16), (roles.n, 8), (roles.k, step)):
        slot = slot_of(axis, len(graph.operator.spatial))
        schedule = climbed(graph, schedule, f"tile[{slot}]", lambda s, at=slot, n=length: s.tile[0][at] % n == 0)
    return climbed(graph, schedule, "raise[tensor_core]", lambda s: s.knob("tensor_core") == 1)


def walk(
    graph: ConstructionGraph, rng: np.random.Generator, steps: int, schedule: Schedule | None = None
) -> Iterator[Schedule]:
    """Schedules along one random walk (from the start); growing moves and `cache` twice as likely as the others."""
    schedule = schedule or graph.initial()
    for _ in range(steps):
        yield schedule
        legal = np.flatnonzero(graph.action_mask(schedule))[1:]
        if len(legal) == 0:
            return
        weights = np.array([2.0 if graph.actions[a].primitive in ("tile", "cache", "raise") else 1.0 for a in legal])
        schedule = graph.transition(schedule, int(rng.choice(legal, p=weights / weights.sum())))


def grown(graph: ConstructionGraph, rng: np.random.Generator, opens: float) -> list[Schedule]:
    """A path of growing moves until none is legal; the next level is opened with probability `opens` in each step."""
    path = [graph.initial()]
    while True:
        legal = np.flatnonzero(graph.action_mask(path[-1]))
        names = {int(a): graph.actions[a].primitive for a in legal}
        growing = [a for a, name in names.items() if name in ("tile", "set_vthread", "raise")]
        caches = [a for a, name in names.items() if name == "cache"]
        chosen = caches if caches and (not growing or rng.random() < opens) else growing
        if not chosen:
            return path
        path.append(graph.transition(path[-1], int(rng.choice(chosen))))


def choose(masks: np.ndarray, rng: np.random.Generator, stop: float = 0.12) -> np.ndarray:
    """One action for each environment, mostly legal ones."""
    actions = []
    for mask in masks:
        others = np.flatnonzero(mask)[1:]
        legal = 0 if len(others) == 0 or rng.random() < stop else rng.choice(others)
        actions.append(rng.integers(len(mask)) if rng.random() < 0.1 else legal)
    return np.array(actions)


def of_damaged(
    graph: ConstructionGraph, schedules: Sequence[Schedule], times: int, values: Sequence[int], rng: np.random.Generator
) -> list[bool]:
    """Verdicts, which are the oracle's, on schedules that have one of the values in a place, each so many times."""
    oracle, verdicts = Oracle(graph.operator, graph.hardware, "extended"), []
    for schedule in schedules:
        for _ in range(times):
            row = schedule.row.copy()
            row[rng.integers(ROW)] = rng.choice(values)
            verdicts.append(graph.is_legal(Schedule(row)))
            assert verdicts[-1] == oracle.is_legal(Schedule(row)), row
    return verdicts
