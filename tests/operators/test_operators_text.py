"""Text of operators: what `str` writes `parse` reads, and nothing is ever evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_gym import operators
from gensor_gym.operators.types import Operator

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
