"""Programs that walks reach, and the text of their kernels: every operator, every kind of machine, every space.

A value has two halves: of the schedules that walks end at, then of the kernel. Where the first differs the rules have
changed, where only the second does, the text of a generator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gensor_gym import ConstructionGraph, codegen
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from tests.identical.digests import of
from tests.support.graph_walks import SPACES, TENSOR

OPERATORS = (
    "gemm(m=64, n=48, k=40)",
    "gemm(m=4096, n=4096, k=1024)+bias+relu",
    'gemm(m=50, n=40, k=72, dtype="float16")+bias+gelu',
    'gemm(m=37, n=56, k=40, dtype="tf32")+residual',
    'gemm(m=48, n=29, k=64, dtype="tf32x3")+scale',
    'gemm(m=33, n=65, k=129, dtype="int8")',
    "batched_gemm(b=3, m=16, n=40, k=24)",
    'batched_gemm(b=2, m=24, n=24, k=64, dtype="int8")+relu',
    "gemv(m=100, k=333)",
    'gemv(m=72, k=128, dtype="bfloat16")+bias',
    "conv2d(n=2, c=8, h=14, w=14, k=32, r=3, s=3, padding=1)",
    "conv2d(n=1, c=4, h=15, w=13, k=6, r=3, s=2, stride=2, padding=(1, 0), dilation=(1, 2), groups=2)",
    'conv2d(n=1, c=34, h=9, w=9, k=20, r=2, s=3, dilation=2, padding=2, dtype="int8")+bias',
    "depthwise_conv2d(n=2, c=6, h=20, w=20, r=3, s=3, stride=2, padding=1)",
    "avg_pool2d(n=2, c=5, h=13, w=13, r=3, s=3, stride=2, padding=1)",
    "max_pool2d(n=2, c=8, h=12, w=12, r=2, s=2, stride=2, padding=0)",
    "reduce_sum(m=64, k=4000)",
    'elementwise("relu", 64, 1000)',
    'elementwise("add", 3, 5)+bias',
    *TENSOR,
)
GPUS = ("h200", "a100", "t4")
CPUS = ("zen5_1c", "cascade_lake")
"""With AVX-512; the second with twenty cores."""
STEPS = 24
"""Of a walk."""
FLOAT32_ONLY = ("float16", "bfloat16", "tf32")
"""Types of which there is no C."""


def kernels(walks: int = 1) -> dict[str, str]:
    """Kernels at the ends of so many walks from every start."""
    return {
        name: f"{of(str(schedule))[:8]} {codegen.generate(graph.operator, schedule, graph.hardware).digest[:16]}"
        for name, graph, schedule in programs(walks)
    }


def programs(walks: int) -> Iterator[tuple[str, ConstructionGraph, Schedule]]:
    """(name, graph, program) at the ends of walks; the space goes round from one operator and machine to the next."""
    for at, operator in enumerate(OPERATORS):
        for machine in _machines(operator):
            for space in dict.fromkeys(("extended", SPACES[at % len(SPACES)])):
                graph = ConstructionGraph(operator, machine, space)
                for start, row in enumerate(starts(graph.tables, graph.initial().row)):
                    for walk in range(walks):
                        draws = np.random.default_rng([at, start, walk]).random(STEPS)
                        name = f"{operator} {machine} {space} {start}.{walk}"
                        yield name, graph, Schedule(graph.walk(row, draws)[-1])


def _machines(operator: str) -> tuple[str, ...]:
    """Machines that there is code for."""
    return GPUS if any(dtype in operator for dtype in FLOAT32_ONLY) else (*GPUS, *CPUS)
