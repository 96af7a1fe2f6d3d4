"""Traits are read off axes and accesses: they say what names say, and a renamed operator has the same space and kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import codegen, hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import convolution_choices
from gensor_gym.operators.build import access, axes
from gensor_gym.operators.traits import has_window, is_convolution, is_product, weights
from gensor_gym.operators.types import Operator
from tests.support.thorough import thorough_but

TEXTS = (
    "gemm(m=64, n=48, k=32)", "gemm(m=1, n=1, k=1)", "gemm(m=128, n=128, k=64, dtype='float16')+bias+relu",
    "gemm(m=64, n=64, k=64, dtype='int8')", "batched_gemm(b=3, m=64, n=40, k=32)", "batched_gemm(b=1, m=8, n=8, k=8)",
    "gemv(m=96, k=100)", "conv2d(n=2, c=16, h=14, w=14, k=24, r=3, s=3, padding=1)",
    "conv2d(n=1, c=8, h=8, w=8, k=8, r=1, s=1)", "conv2d(n=1, c=1, h=5, w=5, k=1, r=1, s=1)",
    "conv2d(n=2, c=12, h=9, w=9, k=12, r=3, s=3, groups=12)", "conv2d(n=2, c=12, h=9, w=9, k=24, r=3, s=2, groups=2, stride=2)",
    "conv2d(n=1, c=64, h=16, w=16, k=64, r=1, s=1, dtype='float16')",
    "depthwise_conv2d(n=2, c=16, h=12, w=12, r=3, s=3, padding=1)", "depthwise_conv2d(n=1, c=1, h=4, w=4, r=1, s=1)",
    "avg_pool2d(n=2, c=8, h=12, w=12, r=2, s=2, stride=2)", "max_pool2d(n=2, c=8, h=12, w=12, r=3, s=3, stride=2, padding=1)",
    "reduce_sum(m=64, k=100)", "elementwise('add', 32, 48)", "elementwise('gelu', 64, 64)",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_traits_say_what_names_say(text: str) -> None:
    op = operators.parse(text)
    assert is_product(op) == (op.name in ("gemm", "batched_gemm", "gemv", "conv2d", "depthwise_conv2d"))
    assert has_window(op) == op.name.endswith("2d")
    assert is_convolution(op) == (op.name == "conv2d")
    assert weights(op) is (op.reads[1] if op.name in ("gemm", "conv2d") else None)


def test_every_operator_of_the_tables_is_among_them() -> None:
    assert {operators.parse(text).name for text in TEXTS} == {op.name for op in operators.resolve("smoke")}


def test_a_convolution_over_one_dimension_is_left_to_the_general_kernels() -> None:
    """Generators of convolutions know images of two dimensions; filters with channels alone do not make one."""
    loops = axes({"n": 2, "k": 16, "q": 30}, {"c": 8, "r": 3})
    x = access(operators.Tensor("X", (2, 8, 32), "float32"), loops, "n", "c", {"q": 1, "r": 1})
    f = access(operators.Tensor("F", (16, 8, 3), "float32"), loops, "k", "c", "r")
    y = access(operators.Tensor("Y", (2, 16, 30), "float32"), loops, "n", "k", "q")
    op = Operator("conv1d", (), loops, "multiply_add", (x, f), y)
    assert is_product(op) and has_window(op) and not is_convolution(op)
    assert convolution_choices(op, "cpu") == convolution_choices(op, "gpu") == (0,)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_another_layout_of_image_filters_or_output_is_left_to_the_general_kernels(number: int) -> None:
    """As NCHW is what generators of convolutions know; the order of one tensor's dimensions is turned round."""
    op = operators.conv2d(2, 16, 14, 14, 24, 3, 3)
    accesses = [*op.reads, op.write]
    accesses[number] = replace(accesses[number], coefficients=accesses[number].coefficients[::-1])
    turned = replace(op, reads=tuple(accesses[:2]), write=accesses[2])
    assert is_convolution(op) and not is_convolution(turned)


@pytest.mark.parametrize("machine", ["h200", "cascade_lake"])
@pytest.mark.parametrize("text", thorough_but(TEXTS, *TEXTS[::4]))
def test_a_renamed_operator_has_the_same_space_and_kernels(text: str, machine: str) -> None:
    op, hw = operators.parse(text), hardware.get(machine)
    if hw.kind == "cpu" and op.dtype == "float16":
        pytest.skip("no float16 on CPUs")
    renamed = replace(op, name="zqx")
    graphs = [ConstructionGraph(one, hw, "extended") for one in (op, renamed)]
    assert graphs[0].initial() == graphs[1].initial()
    rng = np.random.default_rng(0)
    for schedule in [graphs[0].initial(), *(graphs[0].random_schedule(rng) for _ in range(6))]:
        masks = [graph.action_mask(schedule) for graph in graphs]
        assert np.array_equal(*masks) and graphs[0].latency(schedule) == graphs[1].latency(schedule)
        assert text_of(op, schedule, hw) == text_of(renamed, schedule, hw).replace("zqx", op.name)


def text_of(op: Operator, schedule: Schedule, hw: hardware.Hardware) -> str:
    """Source, or why there is none."""
    try:
        return codegen.generate(op, schedule, hw).source
    except ValueError as error:
        return str(error)
