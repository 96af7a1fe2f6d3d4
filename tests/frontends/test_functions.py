"""Error, gamma and Bessel functions, exact remainders and bits: torch's numbers, also where they are infinite or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, special

import gensor_gym
from gensor_gym.dataflow.scalars import SCALARS
from tests.frontends.test_numbers import INF, NAN, X
from tests.frontends.test_torch_export import Of
from tests.support.thorough import thorough_but

LINE = torch.cat([torch.linspace(-9.7, 9.7, 195) + 0.003, torch.linspace(-1, 1, 81), torch.logspace(-4, 3, 40)])
NUMBERS = torch.cat([X, LINE])
FUNCTIONS = {
    "errors": (torch.erfc, torch.erfinv, torch.cosh),
    "bessel": (torch.i0, special.i0e, special.i1, special.i1e),
    "gamma": (torch.lgamma, torch.digamma, *(lambda x, n=n: torch.polygamma(n, x) for n in (1, 2, 3, 4))),
}


def _together(functions: Sequence[Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
    return lambda *given: tuple(function(*given) for function in functions)


def _compare(function: Callable[..., Any], given: tuple[Tensor, ...], **room: float) -> None:
    expected, found = function(*given), gensor_gym.compile(Of(function).eval(), given, trials=1)(*given)
    for place, (wanted, made) in enumerate(zip(expected, found, strict=True)):
        assert made.dtype == wanted.dtype and made.shape == wanted.shape, place
        torch.testing.assert_close(made, wanted, equal_nan=True, msg=lambda said, place=place: f"{place}: {said}", **room)


@pytest.mark.parametrize("kind", thorough_but(FUNCTIONS, "errors"))
def test_functions_are_torchs(kind: str) -> None:
    _compare(_together(FUNCTIONS[kind]), (NUMBERS,), rtol=1e-5, atol=2e-6)


def test_small_values_keep_their_digits() -> None:
    """A complement of the error function that is written as a difference has none beyond 4."""
    x = torch.linspace(3, 9, 25)
    _compare(lambda x: (torch.erfc(x), special.i1(x / 1e4), torch.erfinv(x / 1e6)), (x,), rtol=2e-6, atol=0.0)


SIDES = torch.tensor([0.0, 1.0, -1.0, 2.5, -7.25, 1e10, 3e-5, INF, -INF, NAN, 16777215.0])
LEFT, RIGHT = (each.reshape(-1) for each in torch.meshgrid(SIDES, SIDES, indexing="ij"))


def test_remainders_are_exact_whatever_the_quotient() -> None:
    rules = torch.fmod, torch.remainder, torch.floor_divide, lambda x, y: torch.div(x, y, rounding_mode="trunc")
    _compare(_together(rules), (LEFT, RIGHT), rtol=0.0, atol=0.0)


@pytest.mark.thorough
def test_whole_quotients_remainders_and_bits() -> None:
    rng = np.random.default_rng(0)
    one, other = (torch.from_numpy(rng.integers(-(1 << 21), 1 << 21, 4000)) for _ in range(2))
    other = torch.where(torch.arange(4000) % 2 == 0, other, other % 17 - 8)
    other = torch.where(other == 0, 3, other)
    rules = (
        torch.fmod, torch.remainder, torch.floor_divide, lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, lambda x, y: x >> 3, lambda x, y: x << 2,
        lambda x, y: x >> (y % 40), lambda x, y: x & 255, lambda x, y: 7 | y, lambda x, y: (x > 0) & 3,
    )  # fmt: skip
    _compare(_together(rules), (one, other), rtol=0.0, atol=0.0)


RANKED = torch.tensor([[3.0, NAN, 1.0, INF, 2.0, 2.0], [0.0, -1, 5, 4, 4, -INF], [NAN] * 6])


@pytest.mark.thorough
def test_medians_modes_and_running_sums() -> None:
    both = RANKED[:2, :4], RANKED[1:, :4]
    _compare(
        lambda x: (*torch.median(x, 1), torch.nanmedian(x, 1)[0], x.median(), *torch.median(x, 0, keepdim=True),
                   torch.logcumsumexp(x, 1)), (RANKED,), rtol=1e-5, atol=1e-6,
    )  # fmt: skip
    _compare(lambda ids: tuple(torch.mode(ids, 0)), (torch.tensor([[3, 1], [2, 1], [3, 0], [2, 0], [5, 0]]),), rtol=0, atol=0)
    for order in (0.0, 1.0, 2.0, 3.0, INF):
        _compare(lambda x, y, order=order: (torch.cdist(x, y, order), torch.pdist(y, order)), both, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_what_is_written_with_steps_on_diagonals_and_multiplied() -> None:
    x, ids = torch.linspace(1, 2, 24).reshape(4, 6), torch.tensor([[0, 2, 2, 1, 0, 0]])
    _compare(
        lambda x, ids: (
            x.slice_scatter(x[:, :2] * 3, 1, 1, 4, 2), x.diagonal_scatter(x[0, :4], 1), x.scatter_reduce(0, ids, x, "prod"),
            x.scatter_reduce(0, ids, x, "prod", include_self=False), torch.block_diag(x, torch.zeros(2, 0), x[:1]),
        ),
        (x, ids), rtol=1e-6, atol=0.0,
    )  # fmt: skip


def test_bounds_of_a_gamma_function_hold_around_its_least_value() -> None:
    x, e = np.array([1.4, 1.4, 0.5, -1.5]), np.array([0.0, 0.2, 0.6, 0.0])
    bound = SCALARS["lgamma"].error(x, e)
    near = SCALARS["lgamma"].value(np.linspace(1.2, 1.6, 401)) - SCALARS["lgamma"].value(np.array([1.4]))
    assert bound[0] == 0.0 and np.isclose(bound[1], np.abs(near).max()) and bound[2] == np.inf and 0 < bound[3] < 1e-5
