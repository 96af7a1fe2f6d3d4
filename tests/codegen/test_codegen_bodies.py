"""A body that stands nowhere but in the table of bodies: its kernels are right in C and in CUDA, windows and integers too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gensor_gym import ConstructionGraph, operators
from gensor_gym.codegen import build, generate
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.operators.bodies import BODIES, OBSERVED, Body
from gensor_gym.operators.types import Operator

APART = Body("({0} - {1}) * ({0} - {1})", lambda a, b: np.square(a - b), 3)


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Operator]]:
    """Squared distances of rows and columns, of bytes, and of windows, whose padding is not left out."""
    monkeypatch.setitem(BODIES, "squared_difference", APART)
    bases = [
        operators.gemm(9, 21, 33),
        operators.gemm(9, 21, 33, dtype="int8"),
        operators.depthwise_conv2d(1, 3, 12, 13, 3, 3, padding=1),
    ]
    yield [op.renamed(name="distances", body="squared_difference") for op in bases]


def expected(op: Operator, inputs: list[np.ndarray]) -> np.ndarray:
    """By the definition, without the table."""
    first, second = (x.astype(np.float64) for x in inputs)
    if first.ndim == 2:
        return np.square(first[:, :, None] - second[None]).sum(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(first, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return np.square(windows - second.reshape(1, 3, 1, 1, 3, 3)).sum(axis=(4, 5))


def test_a_body_of_the_table_alone_is_right_in_both_languages(ops: list[Operator]) -> None:
    rng = np.random.default_rng(7)
    kernels, cases = [], []
    for op in ops:
        inputs = list(operators.random_inputs(op, rng))
        answer = expected(op, inputs)
        np.testing.assert_allclose(op.reference(*inputs), answer, rtol=1e-12)
        cpu, gpu = (ConstructionGraph(op, name, space="extended") for name in ("zen5_1c", "h200"))
        out = build(op, cpu.random_schedule(rng), "zen5_1c")(*inputs)
        np.testing.assert_allclose(out, answer, rtol=2e-5, atol=2e-5)
        kernels.append(generate(op, gpu.random_schedule(rng), "h200"))
        cases.append((inputs, answer))
    with EmulatedKernels(kernels) as program:
        for number, (inputs, answer) in enumerate(cases):
            np.testing.assert_allclose(program.run(number, inputs), answer, rtol=2e-5, atol=2e-5)
    assert ops[0].flops == 3 * ops[0].points


def test_places_of_bodies_stay() -> None:
    """Tables of tasks and features of learned models hold them."""
    assert tuple(BODIES)[: len(OBSERVED)] == OBSERVED
