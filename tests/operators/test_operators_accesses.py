"""Operators: accesses against brute force, traits, and their text."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym import codegen, hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.structure import convolution_choices
from gensor_gym.operators import build
from gensor_gym.operators.build import axes
from gensor_gym.operators.inputs import from_bfloat16
from gensor_gym.operators.traits import has_window, is_convolution, is_product, weights
from gensor_gym.operators.types import Access, Operator
from tests.support.thorough import thorough_but

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
    x = build.access(operators.Tensor("X", (2, 8, 32), "float32"), loops, "n", "c", {"q": 1, "r": 1})
    f = build.access(operators.Tensor("F", (16, 8, 3), "float32"), loops, "k", "c", "r")
    y = build.access(operators.Tensor("Y", (2, 16, 30), "float32"), loops, "n", "k", "q")
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


EXTENT = st.integers(1, 40)
DTYPE = st.sampled_from(["float32", "float16", "bfloat16"])
STAGES = st.lists(st.sampled_from(["bias", "relu", "gelu", "scale", "residual"]), max_size=3)


def _pair(low: int, high: int) -> st.SearchStrategy:
    """One number, or two."""
    return st.one_of(st.integers(low, high), st.tuples(st.integers(low, high), st.integers(low, high)))


@st.composite
def any_operator(draw: st.DrawFn) -> Operator:
    """An operator of any kind with any options and epilogue."""
    name = draw(st.sampled_from([op.name for op in operators.resolve("smoke")]))
    dtype = draw(DTYPE)
    if name == "elementwise":
        function = draw(st.sampled_from(["relu", "gelu", "sigmoid", "tanh", "exp", "copy", "add", "mul"]))
        op = operators.elementwise(function, *draw(st.lists(EXTENT, min_size=1, max_size=4)), dtype=dtype)
    elif name == "conv2d":
        groups = draw(st.integers(1, 3))
        sizes = dict(n=draw(EXTENT), c=groups * draw(EXTENT), h=draw(st.integers(7, 40)), w=draw(st.integers(7, 40)))
        sizes |= dict(k=groups * draw(EXTENT), r=draw(st.integers(1, 3)), s=draw(st.integers(1, 3)), groups=groups)
        options = dict(stride=draw(_pair(1, 3)), padding=draw(_pair(0, 3)), dilation=draw(_pair(1, 3)))
        op = operators.conv2d(**sizes, **options, dtype=dtype)
    elif name in ("depthwise_conv2d", "avg_pool2d", "max_pool2d"):
        sizes = [draw(EXTENT), draw(EXTENT), draw(st.integers(3, 40)), draw(st.integers(3, 40))]
        window = [draw(st.integers(2, 3)), draw(st.integers(2, 3))]
        op = getattr(operators, name)(*sizes, *window, draw(_pair(1, 3)), draw(_pair(0, 1)), dtype=dtype)
    else:
        count = {"gemm": 3, "batched_gemm": 4, "gemv": 2, "reduce_sum": 2}[name]
        op = getattr(operators, name)(*(draw(EXTENT) for _ in range(count)), dtype=dtype)
    return op.with_epilogue(*draw(STAGES))


@settings(max_examples=150, deadline=None)
@given(any_operator())
def test_text_round_trip(op: Operator) -> None:
    """parse(str(op)) is op, and the text is canonical."""
    assert operators.parse(str(op)) == op
    assert str(operators.parse(str(op))) == str(op)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("gemm(512, 384, 1000)", "gemm(m=512, n=384, k=1000)"),
        (" gemm( 4, k=6, n=5, dtype='float32' ) + bias + relu ", "gemm(m=4, n=5, k=6)+bias+relu"),
        ("gemm(4, 5, 6, 'int8')", 'gemm(m=4, n=5, k=6, dtype="int8")'),
        ("conv2d(1,3,8,8,4,3,3,(1,1),[1,1],1,1)", "conv2d(n=1, c=3, h=8, w=8, k=4, r=3, s=3, padding=1)"),
        ("conv2d(1,3,8,8,4,3,3,stride=(2,1))", "conv2d(n=1, c=3, h=8, w=8, k=4, r=3, s=3, stride=(2, 1))"),
        ("elementwise('relu', 4)", 'elementwise(name="relu", shape=(4,))'),
        ("elementwise(shape=[4, 5], name='add')+bias", 'elementwise(name="add", shape=(4, 5))+bias'),
        ("elementwise('add', shape=(4, 5))", 'elementwise(name="add", shape=(4, 5))'),
    ],
)
def test_ways_to_write_one_operator(text: str, canonical: str) -> None:
    """Positions, keywords, quotes, spaces and pairs come out the same."""
    assert str(operators.parse(text)) == canonical
    assert operators.parse(text) == operators.parse(canonical)


@pytest.mark.parametrize(
    "text",
    [
        "", "gemm", "gemm(", "gemm(4, 4)", "gemm(4, 4, 4, 4, 4)", "gemm(4, 4, 4, m=4)", "gemm(4, 4, 4, x=1)",
        "gemm(4, 4, m)", "gemm(4, 4, 2+2)", "gemm(*[4, 4, 4])", "gemm(**{'m': 4})", "foo(4)", "gemm(4, 4, 4)-relu",
        "gemm(4, 4, 4)+relu()", "relu+gemm(4, 4, 4)", "operators.gemm(4, 4, 4)", "gemm(4, 4, 4); gemm(4, 4, 4)",
        "__import__('os').system('true')", "gemm(m=__import__('os').getpid(), n=4, k=4)", "gemm(4, 4, 4)\x00",
        "(" * 500 + ")" * 500, "elementwise(name='relu')", "elementwise('relu', 4, shape=(4,))",
        "elementwise('relu', shape=4)", "elementwise(shape=(4,))", "gemm(m=4, m=4, n=4, k=4)", None, 4,
    ],
)  # fmt: skip
def test_what_is_not_an_operator(text: object) -> None:
    """ValueError, whatever it was."""
    with pytest.raises(ValueError, match="expected"):
        operators.parse(text)
