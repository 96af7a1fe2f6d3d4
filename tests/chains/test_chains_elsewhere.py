"""Chains away from here: exported to C without Python, and on NEON and AVX2 under emulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.codegen.chains.generate import ChainProgram, generate_chain
from gensor_gym.codegen.export import export
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load
from gensor_gym.hardware import get
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import fused_draws
from tests.support.chain_cases import ChainDraw
from tests.support.emulation import AVX2, NEON, built, outputs
from tests.support.exports import run, sanitized

TARGETS = {"neon": NEON, "avx2": AVX2}


def kernels_for(hw: Hardware, seeds: Sequence[int]) -> list[Kernel]:
    """Of each chain that there is the kernel of a random schedule."""
    found = []
    for seed in seeds:
        graph = ChainDraw(seed).graph
        try:
            space = ChainGraph(graph, hw)
        except ValueError:
            continue
        found.append(generate_chain(ChainProgram(chain_of(graph), space.random_schedule(np.random.default_rng(seed), 60), hw)))
    assert len(found) > 0.7 * len(seeds)
    return found


def test_an_exported_chain_runs_without_python_and_has_the_same_digits(tmp_path: Path) -> None:
    (kernel,) = kernels_for(get("host"), [3])
    made = export([kernel], tmp_path / "made", 2)
    compiler = find_compiler().command
    run([*compiler, "example.c", "-o", "example", "-L.", "-lgensor_kernels", "-Wl,-rpath,$ORIGIN"], made.folder)
    printed = float(run(["./example"], made.folder).split()[1])
    shapes = [tensor.shape for tensor in kernel.operator.inputs]
    values = [(np.arange(np.prod(shape)) * (2 * place + 3)) % 7 - 3 for place, shape in enumerate(shapes)]
    found = load(kernel)(*(one.astype(np.float32).reshape(shape) for one, shape in zip(values, shapes, strict=True))).ravel()
    assert np.isfinite(printed) and printed == float(np.sum(found.astype(np.float64) * (np.arange(found.size) % 5 + 1)))
    assert sanitized(made.folder, "example.c", "-fsanitize=address,undefined") == ""


def faults(kernels: list[Kernel], command: list[str], guards: bool) -> list[str]:
    """What is wrong with the outputs of a program of these kernels."""
    draws = [fused_draws(kernel.operator, 0)[0] for kernel in kernels]  # type: ignore[arg-type]
    found = outputs(command, kernels, [draw.inputs for draw in draws], guards)
    return [fault for draw, output in zip(draws, found, strict=True) if (fault := draw.fault(output))]


@pytest.mark.thorough
@pytest.mark.fetches
@pytest.mark.parametrize("name", TARGETS)
def test_random_chains_are_right_under_emulation(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    kernels = kernels_for(target.hardware, range(400, 424))
    program = str(built(kernels, target, tmp_path))
    assert faults(kernels, [*target.qemu, program], target.guards) == []
    right = next(kernel for kernel in kernels if " += a0 * b0" in kernel.source)
    wrong = dataclasses.replace(right, source=right.source.replace(" += a0 * b0", " -= a0 * b0"))
    (tmp_path / "wrong").mkdir()
    assert faults([wrong], [*target.qemu, str(built([wrong], target, tmp_path / "wrong"))], target.guards) != []
