"""Winograd's algorithm as an operator: its matrices give the convolution, and its bound is of its own roundings."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import arithmetic_seconds
from gensor_gym.measure.answers.expectation import error_bound, expected_of, linear_part
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.operators.kinds.winograd import FILTER, INPUT, OUTPUT, SPAN, TAPS, TILE, magnitude
from gensor_gym.operators.text import parse
from tests.support.c_cases import inputs_of, machine
from tests.support.winograd_cases import winograd


def test_the_matrices_compute_a_convolution() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        d, g = rng.integers(-9, 9, (SPAN, SPAN)), rng.integers(-9, 9, (TAPS, TAPS))
        made = OUTPUT @ ((FILTER @ g @ FILTER.T) * (INPUT @ d @ INPUT.T)) @ OUTPUT.T
        windows = np.lib.stride_tricks.sliding_window_view(d, (TAPS, TAPS))
        assert np.array_equal(made, (windows * g).sum((2, 3))) and made.shape == (TILE, TILE)


def test_text_and_reference_are_those_of_the_convolution() -> None:
    op = winograd(7, 5, 3, 4, "padding=1", "+bias+relu").freeze()
    assert parse(str(op)) == op and "winograd=2" in str(op) and op.winograd == 2
    plain = parse(str(op).replace(", winograd=2", ""))
    assert plain.winograd == 0 and plain.flops == op.flops and plain.compulsory_bytes == op.compulsory_bytes
    inputs = inputs_of(op)
    assert np.array_equal(op.reference(*inputs), plain.reference(*inputs))


@pytest.mark.parametrize(("changed", "said"), [
    ("winograd=3", "winograd=3: expected 0 or 2"), ("winograd=True", "winograd=True: expected 0 or 2"),
    ("stride=2, winograd=2", r"stride=\(2, 2\), expected \(1, 1\)"), ("dilation=2, winograd=2", "dilation="),
    ('dtype="bfloat16", winograd=2', "dtype='bfloat16', expected 'float32'"), ("winograd=2.0", "winograd=2.0"),
    ("groups=2, winograd=2", "image"),
])  # fmt: skip
def test_other_convolutions_are_refused(changed: str, said: str) -> None:
    orders = 'image="nhwc", result="nhwc"'
    with pytest.raises(ValueError, match=said):
        parse(f"conv2d(n=1, c=4, h=8, w=8, k=4, r=3, s=3, {orders}, {changed})")
    for text in ("r=3, s=3, winograd=2", f"r=1, s=3, {orders}, winograd=2", f"r=5, s=5, {orders}, winograd=2"):
        with pytest.raises(ValueError, match="winograd=2: .*expected"):
            parse(f"conv2d(n=1, c=4, h=8, w=8, k=4, {text})")


def test_it_has_schedules_of_its_own() -> None:
    with pytest.raises(ValueError, match="has schedules of its own: expected winograd=0"):
        ConstructionGraph(winograd(8, 8, 4, 4), machine())


def test_its_floor_has_fewer_products() -> None:
    """A right kernel is faster than the multiply-adds of plain sums at peak rate."""
    op, hw = winograd(64, 64, 256, 256, "padding=1").freeze(), machine()
    plain = parse(str(op).replace(", winograd=2", ""))
    assert arithmetic_seconds(op, hw) == pytest.approx(16 / 36 * arithmetic_seconds(plain, hw))
    assert warm_floor(op, hw) < 0.5 * warm_floor(plain, hw)


def slow_magnitude(x: np.ndarray, w: np.ndarray, pad: int, p: int, q: int) -> np.ndarray:
    """The sum of absolute terms, tile by tile and element by element."""
    _, h, wide, c = x.shape
    padded = np.zeros((h + 2 * pad + 4, wide + 2 * pad + 4, c))
    padded[pad : pad + h, pad : pad + wide] = x[0]
    made = np.zeros((1, p, q, len(w)))
    for y, column, k in itertools.product(range(p), range(q), range(len(w))):
        tile = padded[y // 2 * 2 : y // 2 * 2 + SPAN, column // 2 * 2 : column // 2 * 2 + SPAN]
        for i, j in itertools.product(range(SPAN), range(SPAN)):
            taken = abs(OUTPUT[y % 2, i]) * abs(OUTPUT[column % 2, j])
            for channel in range(c):
                points = abs(INPUT[i]) @ tile[:, :, channel] @ abs(INPUT[j])
                made[0, y, column, k] += taken * points * (abs(FILTER[i]) @ w[k, channel] @ abs(FILTER[j]))
    return made


@pytest.mark.parametrize(("h", "w", "pad"), [(4, 5, 1), (5, 3, 0), (3, 3, 2)])
def test_the_magnitude_is_the_sum_of_absolute_terms(h: int, w: int, pad: int) -> None:
    op = winograd(h, w, 2, 3, f"padding={pad}")
    x, filters = (np.abs(array).astype(np.float64) for array in inputs_of(op))
    _, p, q, _ = op.output.shape
    assert np.allclose(magnitude(op, x, filters), slow_magnitude(x, filters, pad, p, q), rtol=1e-12)


def test_the_bound_covers_what_cancels_and_the_epilogue() -> None:
    """A huge tap is rounded in all outputs, also in those where it meets a zero: their points contain it."""
    op = winograd(6, 6, 1, 1, "padding=1", "+bias+residual")
    x, w, bias, residual = inputs_of(op)
    w[0, 0, 1, 1], x[0, 2, 2, 0] = 1e6, 0.0
    bound = error_bound(op, (x, w, bias, residual), op.reference(x, w, bias, residual))
    plain = parse(str(op).replace(", winograd=2", ""))
    other = error_bound(plain, (x, w, bias, residual), plain.reference(x, w, bias, residual))
    assert bound[0, 2, 2, 0] > 1e-2 > 1e-4 > other[0, 2, 2, 0]
    sizes = [np.abs(array).astype(np.float64) for array in (x, w, 2 * bias, 3 * residual)]
    more = magnitude(linear_part(op), *sizes) - magnitude(linear_part(op), *sizes[:2], 0 * bias, 0 * residual)
    assert np.allclose(more, sizes[2] + sizes[3])


def test_sampled_bounds_are_those_of_all_elements() -> None:
    op = winograd(7, 6, 3, 8, "padding=1", "+relu")
    inputs, rng = inputs_of(op), np.random.default_rng(0)
    whole, some = expected_of(op, inputs, rng, 1e9), expected_of(op, inputs, rng, 0.0, 20)
    assert some.index is not None and 20 <= len(some.index) < op.output.size
    assert np.allclose(some.bound, whole.bound.ravel()[some.index], rtol=1e-12)


def test_other_operators_keep_their_bound() -> None:
    op = winograd(7, 6, 3, 8, "padding=1")
    plain = parse(str(op).replace(", winograd=2", ""))
    inputs = inputs_of(op)
    reference = op.reference(*inputs)
    own, other = error_bound(op, inputs, reference), error_bound(plain, inputs, reference)
    assert (own > 1.1 * other).mean() > 0.9 and (own < 5 * other).mean() > 0.5
    assert np.array_equal(other, error_bound(dataclasses.replace(op, winograd=0), inputs, reference))
