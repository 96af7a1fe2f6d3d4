"""The affine accesses of every operator, run by brute force, against the reference that does not use them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.operators import build
from gensor_gym.operators.inputs import from_bfloat16
from gensor_gym.operators.types import Access, Operator

FUNCTIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2.0)),
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "tanh": math.tanh,
    "exp": math.exp,
    "copy": lambda x: x,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
}


def _read(access: Access, array: np.ndarray, point: tuple[int, ...], pad: float) -> float:
    """The element that an access reads at one point of the iteration space."""
    index = tuple(
        sum(c * x for c, x in zip(row, point, strict=True)) + offset
        for row, offset in zip(access.coefficients, access.offset, strict=True)
    )
    if any(i < 0 or i >= size for i, size in zip(index, access.view, strict=True)):
        return pad
    return float(array.reshape(access.view)[index])


def brute_force(op: Operator, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The output, point by point: body over the reduce axes, divisor, epilogue, one write for each output element."""
    out = np.full(op.write.view, np.nan)
    outer = [op.extents[a] for a in op.spatial]
    inner = [op.extents[a] for a in op.reduce]
    for head in np.ndindex(*outer):
        values = []
        for tail in np.ndindex(*inner):
            reads = [_read(a, x, head + tail, op.pad_value) for a, x in zip(op.reads, arrays, strict=False)]
            body = {"multiply_add": "mul", "map": op.function}.get(op.body, "copy")
            values.append(FUNCTIONS[body](*reads))
        value = max(values) if op.body == "max" else math.fsum(values) / op.divisor
        operands = iter(arrays[len(op.reads) :])
        point = head + (0,) * len(inner)
        for stage in op.epilogue:
            operand = [] if stage.access is None else [_read(stage.access, next(operands), point, math.nan)]
            name = {"bias": "add", "residual": "add", "scale": "mul"}.get(stage.name, stage.name)
            value = FUNCTIONS[name](value, *operand)
        place = tuple(int(np.dot(row, point)) for row in op.write.coefficients)
        assert math.isnan(out[place]), f"{op} writes {place} twice"
        out[place] = value
    return out.reshape(op.output.shape)


CASES = [
    "gemm(3, 4, 5)", "gemm(3, 1, 5)+bias+gelu+scale+residual+relu", "gemm(3, 4, 1, dtype='bfloat16')+bias",
    "gemm(3, 4, 5, weights='nk')+bias",
    "gemm(3, 4, 5, dtype='int8')+bias+residual+relu", "batched_gemm(2, 3, 4, 5)+bias+residual", "gemv(4, 6)+bias+scale",
    "reduce_sum(4, 6)+bias+residual", "conv2d(2, 3, 5, 6, 4, 3, 2)", "conv2d(1, 2, 7, 6, 3, 3, 3, 2, 1)+bias+relu",
    "conv2d(1, 2, 8, 9, 2, 3, 2, stride=(1, 2), padding=(0, 2), dilation=(2, 3))+residual",
    "conv2d(2, 4, 5, 5, 6, 3, 3, padding=1, groups=2)+bias+scale+residual",
    "conv2d(1, 3, 4, 4, 3, 3, 3, padding=3, groups=3)",
    "conv2d(2, 3, 5, 6, 4, 3, 2, padding=1, image='nhwc', weights='rskc', result='nhwc')+bias+residual",
    "conv2d(2, 3, 5, 6, 4, 3, 2, stride=2, image='nhwc')", "conv2d(1, 3, 5, 6, 4, 3, 2, weights='rskc', result='nhwc')+scale",
    "avg_pool2d(2, 2, 7, 6, 3, 2, 2, 1, image='nhwc')+bias", "max_pool2d(2, 3, 5, 7, 3, 3, 2, 1, image='nhwc')",
    "depthwise_conv2d(2, 3, 6, 5, 3, 2, stride=(2, 1), padding=(1, 0))+bias+relu",
    "avg_pool2d(2, 2, 7, 7, 3, 3, 2, 1)+bias",
    "avg_pool2d(1, 2, 5, 7, 2, 3, stride=(2, 3), padding=(1, 1))+residual", "max_pool2d(2, 2, 7, 6, 3, 2, 2, 1)+scale",
    "max_pool2d(1, 2, 5, 5, 3, 3, 1, 1, dtype='int8')", "elementwise('relu', 3, 4)+residual",
    "elementwise('mul', 2, 3, 4)+residual+scale+bias", "elementwise('copy', 5)+bias",
    *(f"elementwise({name!r}, 3, 4)" for name in FUNCTIONS),
]  # fmt: skip


def test_every_operator_has_a_case() -> None:
    """No operator goes without."""
    assert {text.split("(")[0] for text in CASES} == set(operators.names())


@pytest.mark.parametrize("text", CASES)
def test_accesses_compute_what_the_reference_says(text: str) -> None:
    """Every output element is written exactly once and has the value of the reference."""
    op = operators.parse(text)
    arrays = operators.random_inputs(op, np.random.default_rng(0))
    values = tuple(from_bfloat16(x) if op.dtype == "bfloat16" else x for x in arrays)
    np.testing.assert_allclose(brute_force(op, values), op.reference(*arrays), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("text", CASES)
def test_an_operator_without_a_definition_is_evaluated_by_its_accesses(text: str) -> None:
    """The same values, whatever the body, groups, padding, divisor and epilogue; its text is read back."""
    op = operators.parse(text)
    arrays = operators.random_inputs(op, np.random.default_rng(0))
    nameless = op.renamed(name="nobody's")
    np.testing.assert_allclose(nameless.reference(*arrays), op.reference(*arrays), rtol=1e-11, atol=1e-13)
    assert operators.parse(str(op)) == op


def test_axes_that_no_read_moves_along_count() -> None:
    """An output axis that repeats values, and a reduced axis that multiplies the sum."""
    loops = build.axes({"i": 2, "j": 3}, {"k": 4, "l": 5})
    x, y = (build.access(operators.Tensor(name, (2, 4), "float32"), loops, "i", "k") for name in "xy")
    written = build.access(operators.Tensor("out", (2, 3), "float32"), loops, "i", "j")
    a, b = np.random.default_rng(0).standard_normal((2, 2, 4))
    product = Operator("outer", (), loops, "multiply_add", (x, y), written)
    sums = Operator("sums", (), loops, "sum", (x,), written)
    np.testing.assert_allclose(product.reference(a, b), np.tile(5 * (a * b).sum(axis=1)[:, None], 3))
    np.testing.assert_allclose(sums.reference(a), np.tile(5 * a.sum(axis=1)[:, None], 3))


@pytest.mark.parametrize("text", CASES)
def test_shapes_agree_with_accesses(text: str) -> None:
    """Views hold as many elements as tensors; only windows with padding leave them; writes cover the output."""
    op = operators.parse(text)
    for access in (*op.reads, op.write):
        assert math.prod(access.view) == access.tensor.size
        assert all(c >= 0 for row in access.coefficients for c in row)
    assert math.prod(op.extents[a] for a in op.spatial) == op.output.size
    assert not op.write.is_padded(op.extents)
    assert any(access.is_padded(op.extents) for access in op.reads) == any(key == "padding" for key, _ in op.arguments)
    assert len(op.spatial) <= 5 and len(op.reduce) <= 3
    assert op.spatial + op.reduce == tuple(range(len(op.axes)))


@pytest.mark.parametrize("text", CASES)
def test_compulsory_bytes_count_what_is_touched(text: str) -> None:
    """The count of touched elements equals the number of distinct indices that brute force meets."""
    op = operators.parse(text)
    item = {"float32": 4, "bfloat16": 2, "int8": 1}[op.dtype]
    total = sum(t.nbytes for t in op.inputs[len(op.reads) :]) + op.output.nbytes
    for access in op.reads:
        places = np.arange(access.tensor.size, dtype=float)
        seen = {_read(access, places, point, -1.0) for point in np.ndindex(*op.extents)} - {-1.0}
        total += item * len(seen)
    assert op.compulsory_bytes == total
