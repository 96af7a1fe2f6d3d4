"""Decompositions of our own have the numbers of torch's kernels, those of infinities and NaN included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gensor_gym
from gensor_gym.frontends.decomposed import grid_sampler, multilabel_margin_loss_forward
from gensor_gym.frontends.torch_export import Unsupported, from_torch
from tests.frontends.test_torch_export import Of
from tests.support.thorough import thorough_but

SPECIAL = (0.0, 1e-40, 1e-8, float("inf"), float("-inf"), float("nan"), 16777217.0)
MODES, PADDINGS, REDUCTIONS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), ("none", "mean", "sum")
LABELS = torch.tensor([[1, 3, -1, 2, 0], [0, 1, 2, 3, 4], [-1, 0, 0, 0, 0], [2, -1, -1, 1, 1]])


def with_special(x: Tensor, step: int) -> Tensor:
    places = x.view(-1)[::step]
    places[:] = torch.tensor(SPECIAL).repeat(len(places))[: len(places)]
    return x


def image_and_grid(rank: int, special: bool) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(rank)
    image = torch.randn(2, 3, *(5, 7, 4)[:rank], generator=made)
    grid = torch.rand(2, *(6, 4, 3)[:rank], rank, generator=made) * 3 - 1.5
    return (with_special(image, 7), with_special(grid, 3)) if special else (image, grid)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("rank, mode", [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")])
def test_samples_of_grids_are_the_kernels(rank: int, mode: str, padding: str, corners: bool, special: bool) -> None:
    image, grid = image_and_grid(rank, special)
    expected = functional.grid_sample(image, grid, mode, padding, corners)
    found = grid_sampler(image, grid, MODES.index(mode), PADDINGS.index(padding), corners)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins_are_the_kernels(reduction: str, special: bool) -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    x, number = with_special(x, 3) if special else x, REDUCTIONS.index(reduction)
    expected = torch.ops.aten.multilabel_margin_loss_forward(x, LABELS, number)
    torch.testing.assert_close(multilabel_margin_loss_forward(x, LABELS, number), expected, equal_nan=True)


@pytest.mark.parametrize("rank", thorough_but([2, 3]))
def test_compiled_ones_are_torchs(rank: int) -> None:
    given = image_and_grid(rank, True)
    module = Of(lambda image, grid: functional.grid_sample(image, grid, "nearest" if rank == 2 else "bilinear", "border", False))
    found = gensor_gym.compile(module.eval(), given, trials=1)(*given)
    torch.testing.assert_close(torch.as_tensor(found), module(*given), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("square, reduction", [(False, "none"), *thorough_but([(True, "mean"), (True, "sum")])])
def test_compiled_margins_leave_nan_out_and_keep_the_axes(square: bool, reduction: str) -> None:
    """Torch's own decomposition returns NaN and, of one row, a vector; its kernel does neither."""
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    options = {"p": 2 if square else 1, "margin": 0.5, "reduction": reduction, "weight": torch.tensor([0.5, 1.0, 2.0, 0.25, 1.0])}
    module = Of(lambda rows, classes: functional.multi_margin_loss(rows, classes, **options)).eval()
    for given in ((with_special(x, 3), torch.tensor([1, 4, 0, 2])), (x[0], torch.tensor(2))):
        found = gensor_gym.compile(module, given, trials=1)(*given)
        torch.testing.assert_close(torch.as_tensor(found), module(*given), equal_nan=True)


@pytest.mark.parametrize("weights", [False, True])
def test_attention_of_one_operation_is_the_kernels(weights: bool) -> None:
    shapes, seeded = ((2, 5, 8), (24, 8), (24,), (8, 8), (8,)), torch.Generator().manual_seed(7)
    x, *own = (0.5 * torch.randn(shape, generator=seeded) for shape in shapes)

    def attention(x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        made = torch._native_multi_head_attention(x, x, x, 8, 2, *own, mask, weights, True, None if mask is None else 1)
        return made if weights else made[:1]

    found = from_torch(Of(attention).eval(), (x,)).reference(x.numpy())
    for one, expected in zip(found, attention(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(one.value).float(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(Unsupported, match="a mask of type 1: expected none"):
        from_torch(Of(attention).eval(), (x, torch.zeros(2, 5, dtype=torch.bool)))
