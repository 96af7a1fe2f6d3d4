"""Compiled functions give torch's numbers for special values, odd sizes and places, or are refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional

import gensor_gym
from gensor_gym.frontends.unsupported import Unsupported
from tests.frontends.test_torch_export import Of
from tests.support.thorough import thorough_but

INF, NAN = math.inf, math.nan
X = torch.tensor([0.0, -0.0, 1e-8, -1e-8, 0.3, -0.7, 1.5, -3.0, 20.0, 1e5, -1e9, 3e38, INF, -INF, NAN, 1e-40])
ONE, OTHER = (each.reshape(-1) for each in torch.meshgrid(X, X, indexing="ij"))
NUMBERS = torch.tensor([0.0, 1, 2, 3, -1, -2, -3, 0.5, -0.5, INF, -INF, NAN, 100, 1e-3])
BASE, POWER = (each.reshape(-1) for each in torch.meshgrid(NUMBERS, NUMBERS, indexing="ij"))
RANKED = torch.tensor([[3.0, NAN, 1.0, INF, NAN, -INF, 2.0, 2.0], [0.0, -1, 5, 5, 4, 4, 9, 7]])
IMAGE = torch.linspace(-3, 5, 3 * 11 * 13).reshape(1, 3, 11, 13).sin()
PATCHES = IMAGE.reshape(1, 11, 13, 3)[:, :10, :12]
SOME_NAN = (3 * IMAGE).round().repeat(2, 1, 1, 1)
SOME_NAN[0, 0, 3, 3:5], SOME_NAN[1, 1] = NAN, -INF
VOLUME = torch.linspace(0, 9, 840).reshape(1, 4, 5, 6, 7).sin()
TABLE, ROWS = torch.linspace(-2, 2, 24).reshape(6, 4), torch.linspace(1, 3, 28).reshape(7, 4)
PLACES = torch.tensor([1, 3, 1, 0, 5, -1, 1])
ALONG = torch.tensor([[0, 2, 2], [3, 1, 1], [1, 0, 3], [2, 3, 2], [0, 1, 0], [3, 2, 1]])
LOST, PLACED = TABLE[:4].clone().reshape(1, 1, 4, 4), ROWS[:5].clone().reshape(1, 1, 5, 4)
LOST[..., 1, 2], PLACED[..., 2, 0] = NAN, INF
SEEN = torch.tensor([[True, True, False, True, False], [True] * 5, [False] * 5, [False, False, True, False, True]])

ONES = (
    "asinh acosh atanh sinh expm1 log1p isnan isinf isfinite sign sqrt softplus logsigmoid mish elu selu celu hardshrink exp log "
    "sigmoid silu abs floor ceil round trunc frac reciprocal rsqrt tanh erf sin cos atan angle signbit nan_to_num log2 log10"
).split()
TWO = "lt le gt ge eq ne maximum minimum fmax fmin copysign hypot atan2".split()
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    **{name: (getattr(torch, name, None) or getattr(functional, name), (X,)) for name in ONES},
    **{name: (getattr(torch, name), (ONE, OTHER)) for name in TWO},
    "asin": (torch.asin, (torch.linspace(-1, 1, 9),)), "acos": (torch.acos, (torch.linspace(-1, 1, 9),)),
    **{f"x ** {power}": (lambda x, power=power: x**power, (X,)) for power in (0, 1, 3, -3, 17, 64, 101, -101, 0.5, -0.5)},
    "pow": (torch.pow, (BASE, POWER)), "1 ** x": (lambda x: 1.0**x, (X,)),
    "bool": (lambda x: x.bool(), (X,)), "any": (lambda x: x.any(), (X,)),
    "threshold": (lambda x: functional.threshold(x, 1, 9), (X,)),
    "isclose": (lambda x: torch.isclose(x, torch.tensor(2.0)), (X,)), "where nan": (lambda x: torch.where(x > 0, x, NAN), (X,)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (torch.tensor([[-INF, -INF], [INF, 1], [1, 2], [NAN, INF]]),)),
    "cumsum": (lambda x: x.cumsum(-1), (torch.tensor([[1.0, 2, 3, -INF], [1, INF, 2, 3], [NAN, 1, 2, 3]]),)),
    "cumsum of whole numbers": (lambda ids: ids.cumsum(0), (torch.arange(40) - 9,)),
    "cummax": (lambda x: torch.cummax(x, -1), (RANKED,)), "cummin": (lambda x: torch.cummin(x, -1), (RANKED,)),
    "sort": (lambda x: torch.sort(x, stable=True), (RANKED,)), "argmax": (lambda x: x.argmax(-1), (RANKED,)),
    "sort down": (lambda x: torch.sort(x, descending=True, stable=True), (RANKED,)),
    "argmin": (lambda x: x.argmin(-1), (RANKED,)), "max": (lambda x: x.max(-1), (RANKED,)),
    "topk": (lambda x: torch.topk(x, 3), (RANKED[:1],)), "smallest": (lambda x: torch.topk(x, 8, largest=False)[0], (RANKED,)),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0, 2, 30])), (X,)),
    "searchsorted": (lambda x: torch.searchsorted(torch.tensor([-1.0, 0, 2, 30]), x, right=True), (X,)),
    **{
        f"{mode} {size}": (lambda x, mode=mode, size=size: functional.interpolate(x, size=size, mode=mode), (IMAGE,))
        for mode in ("nearest", "bilinear") for size in ((5, 7), (22, 26), (11, 13), (30, 1))
    },
    **{
        f"{mode} by {by}": (lambda x, mode=mode, by=by: functional.interpolate(x, scale_factor=by, mode=mode), (IMAGE,))
        for mode in ("nearest", "bilinear") for by in ((1.3, 1.5), (2.05, 3.15), (1.02, 0.7))
    },
    "nearest 2 to 82": (lambda x: functional.interpolate(x, size=82), (torch.tensor([[[0.0, 1.0]]]),)),
    "linear of nan": (lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), (torch.tensor([[[0, 1, 2, NAN]]]),)),
    "means of nan": (lambda x: functional.adaptive_avg_pool1d(x, 3), (torch.tensor([[[0, 1, 2, NAN]]]),)),
    "means": (lambda x: functional.adaptive_avg_pool2d(x, (4, 5)), (IMAGE,)),
    **{
        f"windows apart {apart} {up} {edge}": (
            lambda x, apart=apart, up=up, edge=edge: functional.max_pool2d(x, 3, 2, edge, apart, up), (IMAGE,)
        )
        for apart in (2, 3) for up in (False, True) for edge in (0, 1)
    },
    **{
        f"places of the largest {size} {step} {edge} {apart} {up}": (
            lambda x, window=(size, step, edge, apart, up): functional.max_pool2d(x, *window, return_indices=True), (SOME_NAN,)
        )
        for size, step, edge, apart, up in ((2, 2, 0, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 2, False))
    },
    "places of the largest of signals": (lambda x: functional.max_pool1d(x[0], 3, 2, 1, return_indices=True), (SOME_NAN,)),
    "places of the largest of volumes": (lambda x: functional.max_pool3d(x, 3, 2, 1, return_indices=True), (VOLUME.round(),)),
    **{
        f"places of the largest to {to}": (
            lambda x, to=to: functional.adaptive_max_pool2d(x, to, return_indices=True), (SOME_NAN,)
        )
        for to in ((4, 5), (1, 1), (11, 1))
    },
    "largest of volumes to": (lambda x: functional.adaptive_max_pool3d(x, (2, 3, None)), (VOLUME,)),
    "places undone": (
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2), (IMAGE[:, :, :10, :12],)
    ),
    "patches merged": (lambda x: torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1), (PATCHES,)),
    "every third": (lambda x: x[:, :, 1::3, 2::3] + x[:, :, ::3, :-2:3][:, :, :, :4], (IMAGE[:, :, :9],)),
    "matrix joined to its transpose": (lambda x: torch.cat([x, x.T, x * 2], 1), (IMAGE[0, 0, :, :11],)),
    **{
        f"joined {one}, {other}": (
            lambda x, y: torch.cat([x, y.relu(), x], 1), (VOLUME[0, :, :one], VOLUME[0, :, :other])
        )
        for one, other in ((3, 3), (2, 4), (5, 3))
    },
    "volumes apart": (lambda x: functional.max_pool3d(x, 2, 1, 0, (1, 2, 1)), (VOLUME,)),
    "volumes transposed": (
        lambda x, w: functional.conv_transpose3d(x, w, stride=(2, 1, 2), padding=1, output_padding=(1, 0, 1)),
        (VOLUME, torch.linspace(-1, 1, 216).reshape(4, 2, 3, 3, 3)),
    ),
    "no batch": (lambda x, w: functional.conv2d(x, w), (IMAGE[0], torch.linspace(-1, 1, 54).reshape(2, 3, 3, 3))),
    "rows added": (lambda t, ids, rows: t.index_put((ids,), rows, True), (TABLE, PLACES, ROWS)),
    "rows written": (lambda t, ids, rows: t.index_put((ids,), rows), (TABLE, torch.tensor([1, 3, 0, 2, 5, -2]), ROWS[:6])),
    "elements added": (
        lambda t, i, j, v: t.index_put((i, j), v, True), (TABLE, torch.tensor([1, 1, 2]), torch.tensor([0, 0, 3]), ROWS[0, :3])
    ),
    "whole means": (
        lambda t, ids, rows: t.index_reduce(0, ids, rows, "mean"),
        (torch.tensor([[4, -2], [5, 1], [-5, 3]]), torch.tensor([0, 1, 1]), torch.tensor([[5, -3], [-4, -8], [3, 2]])),
    ),
    "powers of -0": (torch.pow, (torch.tensor([-0.0, -0.0, -0.0, 0.0]), torch.tensor([-1.0, -3.0, -2.0, -1.0]))),
    "parts of parts": (lambda x: x[0, :, :-1, :10].reshape(-1, 10).softmax(-1), (IMAGE,)),
    "index_add": (lambda t, ids, rows: t.index_add(1, ids, rows), (TABLE, torch.tensor([1, 3, 1]), ROWS[:6, :3])),
    **{
        f"scatter_reduce {how} {own}": (
            lambda t, ids, rows, how=how, own=own: t.scatter_reduce(1, ids, rows, how, include_self=own),
            (TABLE, ALONG, ROWS[:6, 1:]),
        )
        for how in ("sum", "mean", "amax", "amin") for own in (True, False)
    },
    "scatter": (lambda t, ids, rows: t.scatter(1, ids[:, :2], rows), (TABLE, ALONG, ROWS[:6])),
    "unfold": (lambda x: x.unfold(2, 3, 2), (IMAGE,)),
    "fold": (lambda x: functional.fold(x, (4, 5), 2), (VOLUME.reshape(-1)[:144].reshape(1, 12, 12),)),
    "number": (lambda x: x[0] + 1, (X,)), "loss": (functional.cross_entropy, (TABLE, torch.tensor([0, 3, 1, 1, 2, 0]))),
    **{
        f"no axes: {name}": (rule, (torch.tensor(2.5),))
        for name, rule in {
            "topk": lambda x: torch.topk(x, 1), "max": lambda x: x.max(0), "cumsum": lambda x: x.cumsum(0), "sort": torch.sort,
            "softmax": lambda x: x.softmax(0), "logsumexp": lambda x: torch.logsumexp(x, 0), "mean": lambda x: x.mean(0),
        }.items()
    },
    "gelu of tanh": (lambda x: functional.gelu(x[None], approximate="tanh"), (X,)),
    "masked nan": (functional.scaled_dot_product_attention, (LOST, PLACED, PLACED, SEEN)),
    "twice": (lambda x: (x, x), (X,)), "whole numbers as floats": (lambda ids: ids.float(), (PLACES,)),
    "not": (lambda ids: ~ids, (PLACES,)),
    "split of what repeats": (lambda x: x.expand(4, 6).reshape(2, 2, 6).split(3, -1), (X[:6],)),
}  # fmt: skip
DEFAULT = (
    "expm1", "le", "x ** 0", "x ** -101", "pow", "bool", "logsumexp", "cumsum", "cummax", "sort", "argmax",
    "nearest by (2.05, 3.15)", "means of nan", "windows apart 2 True 1", "places of the largest 3 2 1 1 True", "patches merged",
    "joined 2, 4", "whole means", "powers of -0", "rows written", "no axes: topk", "not", "masked nan",
)  # fmt: skip
"""One of each kind that was wrong."""
ROOM = {"x ** 101": 1e-4, "x ** -101": 1e-4, "pow": 1e-4}
"""Relative errors of powers by logarithms; of others 2e-5, and 1e-5 beside."""


@pytest.mark.parametrize("name", thorough_but(CASES, *DEFAULT))
def test_numbers_are_torchs(name: str) -> None:
    function, given = CASES[name]
    expected = function(*given)
    found = gensor_gym.compile(Of(function).eval(), given, trials=1)(*given)
    pairs = [(expected, found)] if isinstance(expected, torch.Tensor) else list(zip(expected, found, strict=True))
    for wanted, made in pairs:
        assert made.dtype == wanted.dtype and made.shape == wanted.shape
        room = {"rtol": ROOM.get(name, 2e-5), "atol": 1e-5 if wanted.dim() > 1 else 1e-37}
        torch.testing.assert_close(made, wanted, equal_nan=True, **room)


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (lambda ids: torch.gcd(ids, ids), (PLACES.abs(),), "aten.gcd.default: has no kernels here"),
        (lambda x: x.sum(-1), (torch.zeros(2, 0),), "expected at most 8 axes of extent 1 or more"),
        (lambda x: x + 1, (torch.ones(2).double(),), "torch.float64 on cpu: expected a float32 tensor"),
        (lambda x: x.sum(), (torch.zeros(17_000_000),), "adds up 17000000 elements, expected at most 16777216"),
        (lambda x: (x[:, None] + x).amax(-1), (torch.zeros(10_100),), "102010000 elements, expected at most .* to be verified"),
    ],
)
def test_refusals_are_named_and_fall_back(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], said: str) -> None:
    module = Of(function).eval()
    with pytest.raises(Unsupported, match=said):
        gensor_gym.compile(module, inputs, trials=1)
    with pytest.warns(RuntimeWarning, match="is run by torch"):
        fallen = gensor_gym.compile(module, inputs, trials=1, fallback="torch")
    torch.testing.assert_close(fallen(*inputs), function(*inputs))
