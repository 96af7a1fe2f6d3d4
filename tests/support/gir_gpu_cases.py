"""CUDA kernels of fused operators: random legal schedules of awkward extents, run in the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym import hardware
from gensor_gym.codegen.gir.cuda.generate import generate_gir_cuda
from gensor_gym.codegen.gir.generate import GirProgram
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.measure.emulator.emulator import EmulatedKernels, EmulatorError
from tests.support.gir_cases import SUITE, of_suite, random_schedule

AT_ONCE = 40
"""Kernels that are compiled as one text."""


def gpu(name: str = "h100") -> Hardware:
    """A GPU of the tables."""
    return hardware.get(name)


def graph_of(operator: Dataflow, name: str = "h100") -> GirGraph:
    """Its schedules for a GPU."""
    return GirGraph(operator, gpu(name))


def kernel_of(operator: Dataflow, schedule: GirSchedule | str, name: str = "h100") -> Kernel:
    """The CUDA kernel of a schedule, which must be legal."""
    graph = graph_of(operator, name)
    schedule = GirSchedule.parse(schedule) if isinstance(schedule, str) else schedule
    assert graph.is_legal(schedule), f"{operator}: {schedule}"
    return generate_gir_cuda(GirProgram(graph.nest, schedule, graph.hardware))


def random_kernel(operator: Dataflow, rng: np.random.Generator, name: str = "h100") -> Kernel:
    """Of a random legal schedule."""
    return kernel_of(operator, random_schedule(graph_of(operator, name), rng), name)


def suite_kernels(name: str, seeds: range) -> list[Kernel]:
    """Random legal programs of a factory."""
    generators = [np.random.default_rng([seed, SUITE.index(name), 7]) for seed in seeds]
    return [random_kernel(of_suite(name, rng), rng) for rng in generators]


def faults_of(
    kernels: Sequence[Kernel], draws: int = 2, change: Callable[[Kernel, Any], Any] = lambda kernel, inputs: inputs
) -> dict[int, str]:
    """Of every wrong kernel its number, and what verification or the emulator's checks say of it.

    `change` gives the kernel other inputs than those that the answers are of.
    """
    found: dict[int, str] = {}
    for start in range(0, len(kernels), AT_ONCE):
        some = kernels[start : start + AT_ONCE]
        with EmulatedKernels(some) as program:
            for number, kernel in enumerate(some):
                assert isinstance(kernel.operator, Dataflow)
                for seed, draw in enumerate(fused_draws(kernel.operator, 0)[:draws]):
                    try:
                        fault = draw.fault(program.run(number, change(kernel, draw.inputs), seed))
                    except EmulatorError as error:
                        fault = str(error)
                    if fault:
                        found[start + number] = f"{kernel.source.partition(chr(10))[0]}: {fault}"
    return found
