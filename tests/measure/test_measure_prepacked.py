"""Prepacked weights: a variant with a label, right for the weights that its first entry packed, compared with its like only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.optimizer import optimize
from gensor_gym import codegen, hardware, operators
from gensor_gym.codegen.c.codegen import PREPACKED, generate_c
from gensor_gym.codegen.kernel import PACKS, Kernel
from gensor_gym.codegen.program import lower
from gensor_gym.codegen.runtime.c import load
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.starts import starts
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.baselines.torch import TorchBaseline
from gensor_gym.measure.devices.cpu import CpuDevice
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.trial import check
from gensor_gym.operators.types import Operator
from tests.support.c_cases import inputs_of, machine, program
from tests.support.thorough import thorough_but

GEMM = operators.gemm(m=40, n=112, k=43)
CONV = operators.conv2d(n=2, c=6, h=9, w=11, k=20, r=3, s=3, padding=1)
TILES = (3, 48, 1), (6, 48, 6), (12, 96, 12)
WINDOW = [(1, 4, 2, 16, 1, 1, 1), (1, 4, 2, 16, 2, 3, 3), (1, 8, 4, 16, 6, 3, 3)]


def _kernels() -> list[Kernel]:
    one_task = (3, 48, 1), (6, 48, 6), (42, 96, 12)
    cases = [program(op.freeze(), *tiles, pack_a=a, pack_b=1, thread_split=s)
             for op in (GEMM, operators.gemm(m=40, n=112, k=43, dtype="int8"), GEMM.with_epilogue("bias", "relu"))
             for tiles, a, s in ((TILES, 0, 1), (TILES, 1, 1), (TILES, 1, 2), (one_task, 0, 1))]  # fmt: skip
    channels = [(1, 16, 2, 3, 1, 1, 1), (1, 16, 2, 3, 2, 3, 3), (1, 32, 4, 6, 6, 3, 3)]
    cases += [program(CONV.freeze(), *tiles, convolution=c, pack_a=1, pack_b=1) for c, tiles in ((1, channels), (2, WINDOW))]
    return [generate_c(case) for case in cases]


@pytest.mark.thorough
@pytest.mark.parametrize("threads", thorough_but([1, 2], 2))
def test_values_are_right_with_what_the_first_entry_packed(threads: int) -> None:
    device = CpuDevice()
    for kernel in _kernels():
        assert (kernel.prepares, kernel.launches[0].entry, kernel.prepacked) == (PACKS, PREPACKED, True)
        path = build_c(kernel).path
        loaded = device.load(Built(kernel, path), threads)
        for draw in make_draws(kernel.operator, 0):
            loaded.write(draw)
            assert np.isnan(loaded.read()).all() or kernel.operator.dtype == "int8"
            loaded.time(3)
            assert check(loaded, draw) == "", str(kernel.operator)
        loaded.close()


def test_the_weights_are_those_of_the_packing_call_and_no_later_ones() -> None:
    kernel = generate_c(program(GEMM.freeze(), *TILES, pack_b=1))
    loaded = CpuDevice().load(Built(kernel, build_c(kernel).path), 1)
    first, second = make_draws(GEMM, 0)[:2]
    loaded.write(first)
    for buffer, array in zip(loaded._inputs, (second.inputs[0], second.inputs[1]), strict=True):
        buffer.array[...] = array
    loaded.time(1)
    np.testing.assert_allclose(loaded.read(), second.inputs[0] @ first.inputs[1], rtol=1e-4, atol=1e-4)
    loaded.close()


def test_a_prepacked_kernel_is_another_kernel_and_says_so() -> None:
    plain, packed = (generate_c(program(op, *TILES, pack_b=1)) for op in (GEMM, GEMM.freeze()))
    assert plain.digest != packed.digest and not plain.prepacked
    inputs = inputs_of(GEMM)
    np.testing.assert_array_equal(load(packed, 1)(*inputs), load(plain, 1)(*inputs))


def test_weights_beyond_the_last_cache_are_packed_once_if_constant() -> None:
    channels = [(1, 16, 2, 3, 1, 1, 1), (1, 16, 2, 3, 2, 3, 3), (1, 16, 4, 6, 6, 3, 3)]
    made = program(CONV.freeze(), *channels, convolution=1, pack_a=1, pack_b=1)
    levels = tuple(replace(level, capacity=64) if level.name in ("l2", "l3") else level for level in made.hardware.memory)
    small = replace(made.hardware, memory=levels)
    kept, again = (generate_c(replace(made, operator=op, hardware=small)) for op in (made.operator, CONV))
    assert kept.prepacked and not again.prepacked and "packed_w" in again.source
    inputs = inputs_of(CONV)
    np.testing.assert_array_equal(load(kept, 1)(*inputs), load(generate_c(made), 1)(*inputs))


def test_where_no_weights_are_kept() -> None:
    assert not generate_c(program(GEMM.freeze(), *TILES, pack_b=0)).prepacked
    for text in ("batched_gemm(b=3, m=40, n=112, k=43)", "gemv(m=9, k=20)", "reduce_sum(m=4, k=4)"):
        with pytest.raises(ValueError, match="no weights to freeze"):
            operators.parse(f"frozen {text}")
    frozen = operators.parse("frozen gemm(m=64, n=64, k=64)")
    assert not codegen.generate(frozen, ConstructionGraph(frozen, "h200").initial(), "h200").prepacked


@pytest.mark.parametrize("op", [GEMM.with_epilogue("bias", "gelu"), CONV, operators.conv2d(n=1, c=16, h=7, w=7, k=32, r=1, s=1)])
def test_that_weights_are_constant_is_part_of_the_operator(op: Operator) -> None:
    frozen = op.freeze()
    assert str(frozen) == f"frozen {op}" and operators.parse(str(frozen)) == frozen != op
    assert frozen.freeze() == frozen and frozen.with_epilogue("relu").frozen
    hw = machine(16)
    graph, plain = ConstructionGraph(frozen, hw), ConstructionGraph(op, hw)
    rng = np.random.default_rng(0)
    packed = 0
    for _ in range(40):
        schedule = graph.random_schedule(rng, 30)
        terms = graph.terms(schedule)
        kernel = generate_c(lower(frozen, schedule, hw))
        packed += kernel.prepacked
        alone = not schedule.knob("pack_a") and kernel.prepacked
        assert terms["staging"] == 0.0 if alone else terms["staging"] <= plain.terms(schedule)["staging"]
    assert packed


def test_the_first_trials_of_a_frozen_convolution_are_of_both_kinds() -> None:
    op = operators.conv2d(n=1, c=32, h=14, w=14, k=64, r=1, s=1).freeze()
    found = optimize(op, "cascade_lake", "markov", trials=2, backend="analytic", walkers=4, steps=24, refiners=4, refine_steps=8)
    assert {"convolution=1" in row.schedule for row in found.trace} == {True, False}


@pytest.mark.parametrize("seed", thorough_but(range(6), 0, 3))
def test_random_programs_of_frozen_operators_are_right(seed: int) -> None:
    op, hw, device, rng = (GEMM, CONV)[seed % 2].freeze(), machine(16), CpuDevice(), np.random.default_rng(seed)
    draw = make_draws(op, 0)[0]
    graph = ConstructionGraph(op, hw)
    for start in starts(graph.tables, graph.initial().row):
        kernel = generate_c(lower(op, graph.random_schedule(rng, 24, graph.schedule(start)), hw))
        loaded = device.load(Built(kernel, build_c(kernel).path), 1 + seed % 2)
        loaded.write(draw)
        loaded.time(2)
        assert check(loaded, draw) == ""
        loaded.close()


@pytest.mark.parametrize("text", [
    "gemm(m=9, n=20, k=31)", "gemm(m=9, n=20, k=31)+bias+gelu",
    pytest.param('gemm(m=9, n=20, k=31, dtype="bfloat16")+bias+relu', marks=pytest.mark.skipif(
        "avx512_bf16" not in cpu_info().flags, reason="oneDNN may have no kernel for bfloat16")),
    "conv2d(n=2, c=6, h=9, w=11, k=20, r=3, s=3, stride=2, padding=1)+bias+relu",
    "conv2d(n=1, c=8, h=9, w=9, k=4, r=3, s=3, padding=(2, 1), dilation=2, groups=2)+relu",
])  # fmt: skip
def test_prepacked_onednn_gives_the_reference(text: str) -> None:
    op = operators.parse(text)
    draw = make_draws(op, 0)[0]
    assert TorchBaseline(op, draw.inputs, 1, prepacked=True).fault(draw) == ""


@pytest.mark.parametrize("text", ["gemv(m=9, k=20)", "gemm(m=9, n=20, k=31)+relu+bias", 'gemm(m=4, n=4, k=4, dtype="int8")'])
def test_what_onednn_has_no_prepacked_call_for(text: str) -> None:
    op = operators.parse(text)
    with pytest.raises(ValueError, match="no prepacked torch baseline"):
        TorchBaseline(op, make_draws(op, 0)[0].inputs, 1, prepacked=True)


@pytest.mark.thorough
def test_kernels_of_a_frozen_operator_are_compared_with_prepacked_onednn_and_never_with_those_of_another() -> None:
    hw, backend = hardware.get("host"), cpu_backend()
    frozen = GEMM.freeze()
    packed, direct = (generate_c(program(frozen, *TILES, hw=machine(hw.lanes), pack_b=b)) for b in (1, 0))
    plain = generate_c(program(GEMM, *TILES, hw=machine(hw.lanes), pack_b=1))
    try:
        samples = backend.compare({"ours": packed, "direct": direct}, hw, rounds=2, torch=True)
        assert set(samples) == {"ours", "direct", "torch.prepacked"} and all(len(times) == 2 for times in samples.values())
        with pytest.raises((ValueError, RuntimeError), match="kernels of one operator"):
            backend.compare({"ours": packed, "plain": plain}, hw, rounds=2)
        measured = [backend.trial(backend.compile([kernel])[0], hw) for kernel in (packed, plain)]
    finally:
        backend.close()
    assert [m.status for m in measured] == [Status.OK, Status.OK]
    assert [m.conditions.get("prepacked") for m in measured] == [True, None]
