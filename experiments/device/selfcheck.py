"""What can be checked of a run on a GPU machine without its GPU: imports, kernels, NVRTC, the emulator, the tables."""

from __future__ import annotations

import importlib

import numpy as np

from agents import get_strategy
from agents.policies.learned import Learned
from experiments.device.context import Context
from experiments.device.stages import compare, correctness, operators, policies, refit, tables
from experiments.device.stages.candidates import candidates
from experiments.device.stages.families import FAMILIES, drawn
from experiments.device.table import read_experiment, read_table
from gensor_gym import hardware
from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import FULL_FLOPS
from gensor_gym.measure.emulator.emulator import EmulatorError, find_cxx
from gensor_gym.measure.measurement import Status

STAGES = (correctness, operators, tables, refit, compare, policies)
COMPILED = 12
"""Kernels that NVRTC compiles."""
EMULATED = ("gemm(m=13, n=11, k=7)", "conv2d(n=1, c=4, h=6, w=6, k=4, r=3, s=3, padding=1)", "reduce_sum(m=5, k=31)")


def run(context: Context) -> dict[str, object]:
    """Every part, with what is missing in words. RuntimeError when something that is there does not work."""
    hw = hardware.get(context.hardware)
    table = read_table()
    made = [kernel for text in FAMILIES for _, kernel in drawn(text, hw.name, context.seed, 1)]
    kernels = [kernel for kernel in made if isinstance(kernel, Kernel)]
    if len(kernels) < len(made):
        raise RuntimeError(f"{len(made) - len(kernels)} of {len(made)} families have no kernel")
    large = next(op for op in table.operators.values() if op.flops > FULL_FLOPS)
    found = {
        "stages": [importlib.import_module(stage.__name__).__name__ for stage in STAGES],
        "operators": len(table.operators),
        "candidates": len(candidates(large, hw, context.seed)),
        "kernels": len(kernels),
        "policies": _construct(hw, context.seed),
        "nvrtc": _compile(kernels, context),
        "emulator": _emulate(context),
    }
    print(f"self-check: {found}")
    return found


def _construct(hw: Hardware, seed: int) -> str:
    """What every learned strategy of stage `policies` proposes for a small operator."""
    said = []
    for name, (registered, parameters) in read_experiment().strategies.items():
        strategy = get_strategy(registered, **parameters)
        if not isinstance(strategy, Learned):
            continue
        try:
            found = strategy.construct(ConstructionGraph(EMULATED[0], hw, strategy.space), np.random.default_rng(seed))
        except ModuleNotFoundError as error:
            said.append(f"{name}: {error}; see experiments/gpu_wheels.txt")
        else:
            said.append(f"{name}: {len(found.schedules)} programs")
    return ", ".join(said)


def _compile(kernels: list[Kernel], context: Context) -> str:
    """Cubins for the device's architecture."""
    if not nvrtc.is_available():
        return f"not installed: pip install {nvrtc.PACKAGES}"
    done = 0
    for kernel in kernels[:: max(1, len(kernels) // COMPILED)]:
        if context.left <= 0:
            break
        if nvrtc.compile_cubin(kernel).cubin[:4] != b"\x7fELF":
            raise RuntimeError(f"NVRTC gave no cubin for {kernel.operator}")
        done += 1
    return f"{nvrtc.version()}: {done} kernels compiled for {kernels[0].arch}"


def _emulate(context: Context) -> str:
    """A few kernels on this CPU, against their references."""
    try:
        find_cxx()
    except EmulatorError as error:
        return str(error)
    from gensor_gym.measure.emulator.backend import EmulatedBackend

    hw, done = hardware.get(context.hardware), 0
    for text in EMULATED:
        if context.left <= 0:
            break
        graph = ConstructionGraph(text, hw, "extended")
        (result,) = EmulatedBackend().measure(graph.operator, [graph.initial()], hw)
        if result.status is not Status.OK:
            raise RuntimeError(f"{text} in the emulator: {result.status.value}: {result.error}")
        done += 1
    return f"{done} kernels right"
