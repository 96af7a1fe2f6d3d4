"""Operators against torch, their counts by hand, and what they reject."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gensor_gym import operators
from gensor_gym.operators.inputs import from_bfloat16, to_bfloat16
from gensor_gym.operators.types import Operator

torch = pytest.importorskip("torch")
F = torch.nn.functional


def _tensors(op: Operator, seed: int = 0) -> tuple[list[np.ndarray], list]:
    """Random inputs as arrays and as float64 torch tensors."""
    arrays = list(operators.random_inputs(op, np.random.default_rng(seed)))
    return arrays, [torch.from_numpy(array.astype(np.float64)) for array in arrays]


CONVOLUTIONS = [
    dict(n=2, c=3, h=8, w=9, k=4, r=3, s=3),
    dict(n=1, c=4, h=11, w=7, k=6, r=3, s=2, stride=2, padding=1),
    dict(n=2, c=4, h=12, w=12, k=6, r=3, s=3, stride=(2, 1), padding=(2, 0), dilation=(1, 3)),
    dict(n=2, c=8, h=7, w=7, k=12, r=3, s=3, padding=2, dilation=2, groups=4),
    dict(n=1, c=5, h=6, w=6, k=5, r=3, s=3, padding=1, groups=5),
    dict(n=1, c=3, h=4, w=4, k=2, r=1, s=1, stride=3),
    dict(n=1, c=1, h=1, w=1, k=1, r=5, s=5, padding=2),
    dict(n=3, c=2, h=5, w=5, k=3, r=5, s=5),
]


@pytest.mark.parametrize("sizes", CONVOLUTIONS)
def test_conv2d_is_torchs(sizes: dict) -> None:
    """Output and shape, for strides, padding, dilation and groups."""
    op = operators.conv2d(**sizes)
    arrays, (x, w) = _tensors(op)
    options = {key: sizes[key] for key in ("stride", "padding", "dilation", "groups") if key in sizes}
    want = F.conv2d(x, w, **options).numpy()
    assert op.output.shape == want.shape
    np.testing.assert_allclose(op.reference(*arrays), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "sizes",
    [
        dict(n=2, c=3, h=8, w=9, r=3, s=3),
        dict(n=1, c=6, h=15, w=13, r=5, s=3, stride=(2, 3), padding=(2, 1)),
        dict(n=2, c=2, h=4, w=4, r=3, s=3, stride=2, padding=1),
    ],
)
def test_depthwise_is_torchs_grouped_convolution(sizes: dict) -> None:
    """A depthwise convolution is a convolution with as many groups as channels."""
    op = operators.depthwise_conv2d(**sizes)
    arrays, (x, w) = _tensors(op)
    want = F.conv2d(x, w, stride=sizes.get("stride", 1), padding=sizes.get("padding", 0), groups=sizes["c"]).numpy()
    assert op.output.shape == want.shape
    np.testing.assert_allclose(op.reference(*arrays), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
@pytest.mark.parametrize(
    ("size", "window", "stride", "padding"),
    [((8, 9), (2, 2), 2, 0), ((13, 13), (3, 3), 2, 1), ((7, 10), (3, 5), (1, 2), (1, 2)), ((5, 5), (1, 1), 2, 0)],
)
def test_pools_are_torchs(name: str, size: tuple, window: tuple, stride: object, padding: object) -> None:
    """Padding counts in the mean and never wins the maximum."""
    op = getattr(operators, name)(2, 3, *size, *window, stride, padding)
    arrays, (x,) = _tensors(op)
    arrays[0] -= 5.0  # all negative, so that padding with zeros would show in the maximum
    want = getattr(F, name)(x - 5.0, window, stride, padding).numpy()
    assert op.output.shape == want.shape
    np.testing.assert_allclose(op.reference(*arrays), want, rtol=1e-6)


def test_products_and_sums() -> None:
    """gemm, batched_gemm, gemv and reduce_sum."""
    for text, function in [
        ("gemm(5, 7, 3)", torch.matmul),
        ("batched_gemm(4, 5, 7, 3)", torch.bmm),
        ("gemv(5, 7)", torch.mv),
        ("reduce_sum(5, 7)", lambda x: x.sum(1)),
    ]:
        op = operators.parse(text)
        arrays, tensors = _tensors(op)
        want = function(*tensors).numpy()
        assert op.output.shape == want.shape
        np.testing.assert_allclose(op.reference(*arrays), want, rtol=1e-12, atol=1e-12)


UNARY = {"relu": F.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp}


@pytest.mark.parametrize("name", [*UNARY, "copy", "add", "mul"])
def test_elementwise_is_torchs(name: str) -> None:
    """Every function, over a shape of three dimensions and one flat axis."""
    op = operators.elementwise(name, 3, 4, 5)
    arrays, tensors = _tensors(op)
    function = {**UNARY, "copy": torch.clone, "add": torch.add, "mul": torch.mul}[name]
    assert op.extents == (60,)
    np.testing.assert_allclose(op.reference(*arrays), function(*tensors).numpy(), rtol=1e-12, atol=1e-14)


def test_elementwise_functions_stay_finite_far_out() -> None:
    """sigmoid, tanh and gelu at +-1000."""
    x = np.array([-1000.0, 1000.0])
    assert operators.elementwise("sigmoid", 2).reference(x).tolist() == [0.0, 1.0]
    assert operators.elementwise("tanh", 2).reference(x).tolist() == [-1.0, 1.0]
    assert operators.elementwise("gelu", 2).reference(x).tolist() == [0.0, 1000.0]


def test_epilogue_of_a_grouped_convolution() -> None:
    """Stages run in order; the per-channel operands are indexed across groups."""
    op = operators.conv2d(2, 4, 6, 6, 6, 3, 3, padding=1, groups=2).with_epilogue("bias", "gelu", "scale", "residual")
    assert [t.name for t in op.inputs] == ["x", "w", "bias", "scale", "residual"]
    arrays, (x, w, bias, scale, residual) = _tensors(op)
    want = F.gelu(F.conv2d(x, w, bias, padding=1, groups=2)) * scale[:, None, None] + residual
    np.testing.assert_allclose(op.reference(*arrays), want.numpy(), rtol=1e-12, atol=1e-12)


def test_epilogue_of_a_product_with_repeated_stages() -> None:
    """A second bias has a tensor and a name of its own."""
    op = operators.gemm(5, 7, 3).with_epilogue("bias", "relu", "bias")
    assert [(t.name, t.shape) for t in op.inputs[2:]] == [("bias", (7,)), ("bias2", (7,))]
    arrays, (a, b, first, second) = _tensors(op)
    np.testing.assert_allclose(op.reference(*arrays), (F.relu(a @ b + first) + second).numpy(), rtol=1e-12, atol=1e-12)


def test_channel_epilogue_gives_elementwise_rows_and_columns() -> None:
    """The order in which stages were appended does not matter for what results; without a channel it stays flat."""
    flat = operators.elementwise("add", 3, 4, 5)
    assert flat.with_epilogue("residual", "relu").extents == (60,)
    op = flat.with_epilogue("residual").with_epilogue("scale").with_epilogue("bias")
    assert op == flat.with_epilogue("residual", "scale", "bias")
    assert op.extents == (12, 5)
    arrays, (a, b, residual, scale, bias) = _tensors(op)
    np.testing.assert_allclose(op.reference(*arrays), ((a + b + residual) * scale + bias).numpy(), rtol=1e-12)
    assert operators.elementwise("copy", 5).with_epilogue("bias").extents == (1, 5)


CHANNELS = {
    "gemm(2, 3, 4)": 3,
    "batched_gemm(5, 2, 3, 4)": 3,
    "gemv(2, 3)": 2,
    "conv2d(1, 4, 5, 5, 6, 2, 2)": 6,
    "conv2d(1, 4, 5, 5, 6, 2, 2, groups=2)": 6,
    "depthwise_conv2d(1, 4, 5, 5, 2, 2)": 4,
    "avg_pool2d(1, 4, 5, 5, 2, 2)": 4,
    "max_pool2d(1, 4, 5, 5, 2, 2)": 4,
    "reduce_sum(2, 3)": 2,
    "elementwise('relu', 2, 3)": 3,
}


@pytest.mark.parametrize(("text", "channels"), CHANNELS.items())
def test_bias_has_the_length_of_the_channel_axis(text: str, channels: int) -> None:
    """Column, row or channel, as each operator says."""
    assert operators.parse(text + "+bias").inputs[-1].shape == (channels,)


def test_counts_by_hand() -> None:
    """Flops and compulsory bytes of small operators, worked out on paper."""
    gemm = operators.gemm(4, 5, 6)
    assert (gemm.flops, gemm.compulsory_bytes) == (240, 4 * (24 + 30 + 20))
    half = operators.gemm(4, 5, 6, dtype="float16").with_epilogue("bias")
    assert half.compulsory_bytes == 2 * (24 + 30 + 5 + 20)
    assert operators.gemm(4, 5, 6, dtype="int8").compulsory_bytes == 24 + 30 + 4 * 20
    assert operators.gemv(1000, 2000).compulsory_bytes == 4 * (2_000_000 + 2000 + 1000)
    pointwise = operators.conv2d(1, 8, 10, 10, 16, 1, 1, stride=2)  # reads 5 x 5 of 10 x 10
    assert (pointwise.flops, pointwise.compulsory_bytes) == (2 * 16 * 25 * 8, 4 * (8 * 25 + 16 * 8 + 16 * 25))
    padded = operators.conv2d(2, 4, 9, 9, 8, 3, 3, padding=1, groups=2)
    assert padded.flops == 2 * (2 * 8 * 81) * (2 * 9)
    assert padded.compulsory_bytes == 4 * (2 * 4 * 81 + 8 * 2 * 9 + 2 * 8 * 81)
    pool = operators.avg_pool2d(1, 2, 7, 7, 3, 3, stride=4)  # windows start at 0 and 4: 0-2 and 4-6 are read
    assert (pool.flops, pool.compulsory_bytes) == (2 * 4 * 9, 4 * (2 * 36 + 2 * 4))
    assert operators.reduce_sum(3, 7).flops == 21
    assert (operators.elementwise("add", 3, 7).flops, operators.elementwise("add", 3, 7).compulsory_bytes) == (21, 252)


def test_axes_in_canonical_order() -> None:
    """Names, kinds and the limits that layouts rely on."""
    grouped = operators.conv2d(1, 4, 5, 6, 8, 3, 2, groups=2)
    assert [(axis.name, axis.extent) for axis in grouped.axes] == [
        ("n", 1), ("g", 2), ("k", 4), ("p", 3), ("q", 5), ("c", 2), ("r", 3), ("s", 2),
    ]  # fmt: skip
    assert (grouped.spatial, grouped.reduce, grouped.channel_axis) == ((0, 1, 2, 3, 4), (5, 6, 7), 2)
    assert [axis.name for axis in operators.conv2d(1, 4, 5, 6, 8, 3, 2).axes] == list("nkpqcrs")
    assert [axis.name for axis in operators.batched_gemm(1, 1, 1, 1).axes] == list("bmnk")


BAD = [
    "gemm(0, 4, 4)", "gemm(4, -1, 4)", "gemm(4, 4.0, 4)", "gemm(True, 4, 4)", "gemm('4', 4, 4)", "gemm(None, 4, 4)",
    "gemm(4, 4, 4, dtype='float64')", "gemm(4, 4, 4, dtype=1)", "gemm(65536, 65536, 1)", "gemv(2147483648, 1)",
    "conv2d(1, 4, 8, 8, 4, 3, 3, groups=3)", "conv2d(1, 6, 8, 8, 4, 3, 3, groups=3)", "conv2d(1, 4, 2, 8, 4, 3, 3)",
    "conv2d(1, 4, 8, 8, 4, 3, 3, dilation=4)", "conv2d(1, 4, 8, 8, 4, 3, 3, stride=0)",
    "conv2d(1, 4, 8, 8, 4, 3, 3, stride=(1, 2, 3))", "conv2d(1, 4, 8, 8, 4, 3, 3, padding=-1)",
    "conv2d(1, 4, 8, 8, 4, 3, 3, padding=2147483647)", "conv2d(1, 4, 8, 8, 4, 3, 3, groups=(1, 1))",
    "conv2d(1, 4, 8, 8, 4, 3, 3, stride=10000000000)", "depthwise_conv2d(1, 4, 2, 2, 3, 3)",
    "avg_pool2d(1, 4, 8, 8, 3, 3, padding=2)", "max_pool2d(1, 4, 8, 8, 1, 3, padding=(1, 0))",
    "avg_pool2d(1, 4, 2, 8, 3, 3)", "avg_pool2d(1, 4, 8, 8, 3, 3, dtype='int8')",
    "avg_pool2d(1, 1, 1, 1, 2000000000, 1, padding=(1000000000, 0), stride=3000000000)",
    "elementwise('relu')", "elementwise('swish', 4)", "elementwise(4, 4)", "elementwise('relu', 4, 0)",
    "elementwise('relu', (4, 4))", "elementwise('gelu', 4, dtype='int8')", "elementwise('relu', 65536, 65536)",
    "gemm(4, 4, 4)+softmax", "gemm(4, 4, 4, dtype='int8')+gelu", "gemm(4, 4, 4, dtype='int8')+scale",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_values_are_refused_with_what_is_accepted(text: str) -> None:
    """ValueError that says what is expected."""
    with pytest.raises(ValueError, match="expected"):
        operators.parse(text)


def test_the_largest_accepted_tensor() -> None:
    """One element below 2**31."""
    assert operators.reduce_sum(2**31 - 1, 1).points == 2**31 - 1


def test_numpy_integers_are_integers() -> None:
    """Extents may come out of arrays; the operator keeps Python's integers."""
    op = operators.gemm(np.int64(4), np.int32(5), 6)
    assert op == operators.gemm(4, 5, 6)
    assert all(type(axis.extent) is int for axis in op.axes)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros((2, 3)),), "1 arrays given, expected 2"),
        ((np.zeros((2, 3)), np.zeros((4, 3))), r"input B has shape \(4, 3\), expected \(3, 4\)"),
        ((np.zeros((2, 3)), np.zeros((3, 4), complex)), "input B has dtype complex128"),
    ],
)
def test_reference_checks_its_inputs(arrays: tuple, message: str) -> None:
    """Number, shape and dtype."""
    with pytest.raises(ValueError, match=message):
        operators.gemm(2, 4, 3).reference(*arrays)


@pytest.mark.parametrize("name", ["tf32", "tf32x3"])
def test_precisions_of_products(name: str) -> None:
    """They read and write float32, are part of the text, and mean nothing where nothing is multiplied."""
    for op in (
        operators.gemm(4, 5, 6, dtype=name).with_epilogue("bias", "gelu"),
        operators.conv2d(1, 4, 5, 5, 4, 3, 3, groups=2, dtype=name).with_epilogue("scale", "residual"),
        operators.gemv(4, 5, dtype=name),
        operators.batched_gemm(2, 3, 4, 5, dtype=name),
        operators.depthwise_conv2d(1, 4, 5, 5, 3, 3, dtype=name),
    ):
        assert {tensor.dtype for tensor in (*op.inputs, op.output)} == {"float32"}
        assert op.accumulator == "float32"
        assert operators.parse(str(op)) == op
        assert f'dtype="{name}"' in str(op)
    for text in ("reduce_sum(4, 5, '{}')", "max_pool2d(1, 4, 8, 8, 2, 2, dtype='{}')", "elementwise('mul', 4, dtype='{}')"):
        with pytest.raises(ValueError, match=f"dtype='{name}': expected one of float32, float16, bfloat16, int8"):
            operators.parse(text.format(name))
    with pytest.raises(ValueError, match=f"dtype='{name}': expected one of float32, float16, bfloat16$"):
        operators.avg_pool2d(1, 4, 8, 8, 2, 2, dtype=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_data_types(dtype: str) -> None:
    """Inputs come in the operator's dtype, the result of int8 is int32, and the reference is exact on its inputs."""
    op = operators.gemm(4, 5, 6, dtype=dtype).with_epilogue("bias")
    arrays = operators.random_inputs(op, np.random.default_rng(1))
    assert arrays[0].dtype == {"bfloat16": np.uint16}.get(dtype, np.dtype(dtype if dtype != "bfloat16" else "u2"))
    assert op.output.dtype == ("int32" if dtype == "int8" else dtype)
    assert arrays[2].dtype == {"bfloat16": np.uint16, "int8": np.int32}.get(dtype, arrays[0].dtype)
    a, b, bias = (from_bfloat16(x) if dtype == "bfloat16" else x for x in arrays)
    want = a.astype(np.float64) @ b.astype(np.float64) + bias
    np.testing.assert_array_equal(op.reference(*arrays), want)


def test_int8_maximum_with_padding() -> None:
    """Padding is the smallest int8, so a window of -128 gives -128."""
    op = operators.max_pool2d(1, 1, 3, 3, 3, 3, padding=1, dtype="int8")
    assert op.pad_value == -128
    assert op.reference(np.full((1, 1, 3, 3), -128, np.int8)).max() == -128


def test_bfloat16_rounds_as_torch_does() -> None:
    """To nearest, ties to even, over many magnitudes."""
    rng = np.random.default_rng(2)
    ties = (np.arange(256, dtype=np.uint32) << 16 | 0x3F808000).view(np.float32)
    values = np.concatenate([rng.standard_normal(5000, np.float32) * 10.0 ** rng.integers(-30, 30, 5000), ties])
    values = values.astype(np.float32)
    want = torch.from_numpy(values).bfloat16()
    np.testing.assert_array_equal(to_bfloat16(values), want.view(torch.uint16).numpy())
    np.testing.assert_array_equal(from_bfloat16(to_bfloat16(values)), want.float().numpy())


def test_random_inputs_repeat_and_spread() -> None:
    """The same generator state gives the same arrays; int8 covers its range and normals have variance one."""
    op = operators.gemm(64, 64, 64, dtype="int8")
    first, second = (operators.random_inputs(op, np.random.default_rng(3))[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first.min(), first.max()) == (-128, 127)
    normal = operators.random_inputs(operators.gemv(200, 200), np.random.default_rng(3))[0]
    assert math.isclose(normal.std(), 1, rel_tol=0.02)


def test_an_unknown_body_is_refused_when_the_operator_is_made() -> None:
    with pytest.raises(ValueError, match="body 'median', expected one of multiply_add, sum, max, map"):
        operators.reduce_sum(m=4, k=4).renamed(body="median")
