"""Integers of torch modules: exact at any size, with the wrap-around of int32 and int64, on CPUs and in the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import gensor_gym
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.folding import folded
from tests.frontends.test_torch_export import Of

FAR = torch.tensor([[-(2**63), 2**63 - 1, 2**24 + 1, -(2**24) - 1, 9], [0, 1, -1, 2**40 + 3, -7]])
NEAR = torch.tensor([[-(2**31), 2**31 - 1, 2**24 + 1, 7, -6], [0, -1, 123456789, -5, 2]], dtype=torch.int32)
BY = torch.tensor([3, -7, 5, -3, 2])
PLACES, HALF = torch.tensor([[1, 0], [0, 1]]), torch.tensor([0.5])
SHIFTS = torch.tensor([1, 70, -1, 63, 0])

OF_FAR: dict[str, Callable[[Tensor], Any]] = {
    "hash": lambda x: (x * 2654435761 + 12345) % 1000003,
    "sums": lambda x: (x + 1, x - x.flip(0), 5 - x, -x, x.abs(), x.sign(), x + (2**62 + 1)),
    "bits": lambda x: (~x, x & x.flip(1), x | x.flip(1), x ^ x.flip(1), x << 3, x >> 40, x << 63, x >> 63),
    "shifts": lambda x: (x << SHIFTS, x >> SHIFTS),
    "quotients": lambda x: (x // BY, x % BY, torch.fmod(x, BY), torch.div(x, BY, rounding_mode="trunc")),
    "powers": lambda x: (x**3, x**0, x ** (BY + 7), 3 ** (BY + 7)),
    "comparisons": lambda x: (x < 2**40, x == x.flip(1), x >= 5, x != 2**24 + 1, x > 0.5, x.isinf(), x < math.inf),
    "extremes": lambda x: (x.min(), x.amin(1), x.max(1), x.argmin(1), x.argmax(), x.clamp(-5, 2**40), x.cummax(1)),
    "sums along axes": lambda x: (x.sum(1), x.sum(), x.cumsum(1), x.prod(1), (x > 0).sum(), torch.count_nonzero(x)),
    "order": lambda x: (x.sort(1), x.topk(2, 1), x.median(1), torch.isin(x, torch.tensor([1, 2**40 + 3]))),
    "products": lambda x: (x @ x.T, x[0].dot(x[1]), torch.bmm(x[None], x.T[None]), torch.addmm(x[:, :2], x, x.T)),
    "moves": lambda x: (x, x[:, 1:3], x.roll(1, 1), torch.cat([x, x + 1]), x.repeat(2, 3)),
    "padded": lambda x: functional.pad(x, (1, 2), value=2**50),
    "places": lambda x: (x.gather(1, PLACES), x[PLACES[0]], x.index_add(0, PLACES[0], x)),
    "written": lambda x: (x.scatter(1, torch.tensor([[1], [0]]), 7), x.masked_fill(x < 0, 9), torch.where(x > 0, x, -x)),
    "constants": lambda x: (x + torch.tensor([2**60, 2**61 + 1, 3, 4, 5]), torch.tensor([2**60 + 1]), torch.arange(5) + x),
    "floats": lambda x: ((x + 1).float() * 0.5, x / 3, (x % 1000).float().mean(), x + HALF, x < HALF),
    "other types": lambda x: ((x + 5).to(torch.int32) * 2, (x + 1).bool(), (x + 1).to(torch.int16), (x + 1).int().float()),
    "means": lambda x: (x % 100).scatter_reduce(1, torch.zeros(2, 5, dtype=torch.long), -(x % 100), "mean"),
    "least of bools": lambda x: (x > 0).scatter_reduce(1, torch.zeros(2, 5, dtype=torch.long), x < 0, "amin"),
    "one value twice": lambda x: (x + 1, (x + 1).view(-1)),
}  # fmt: skip
OF_NEAR: dict[str, Callable[[Tensor], Any]] = {
    "wrap-around": lambda x: (x * x, x + x, (x * 3 + 1) // 7, -x, x << 5, x >> 3, x.abs(), x**3, x - 2**31 + 1),
    "sums": lambda x: (x.sum(1), x.sum(1, dtype=torch.int32), x.cumsum(1, dtype=torch.int32), x.long() * 2**33),
    "shifts": lambda x: (x << SHIFTS.int(), x >> SHIFTS.int(), x + torch.tensor([2**31])),
}


def flat(made: Any) -> list[Tensor]:
    """The tensors of a module's results."""
    return [made] if isinstance(made, Tensor) else [one for part in made for one in flat(part)]


def assert_same(made: Any, expected: Any) -> None:
    """Check types, and every number: integers exactly."""
    for one, wanted in zip(flat(made), flat(expected), strict=True):
        assert one.dtype == wanted.dtype
        if wanted.is_floating_point():
            torch.testing.assert_close(one, wanted, rtol=1e-5, atol=0.0)
        else:
            assert torch.equal(one, wanted), (one, wanted)


@pytest.mark.parametrize(("name", "given"), [*((name, FAR) for name in OF_FAR), *((name, NEAR) for name in OF_NEAR)])
def test_integers_are_torchs(name: str, given: Tensor) -> None:
    """The graph by its reference, folded or not."""
    function = (OF_FAR if given is FAR else OF_NEAR)[name]
    network = from_torch(Of(function).eval(), (given,))
    assert not network.limits
    for form in (network, folded(network)):
        for one, wanted in zip(form.reference(given.numpy()), flat(function(given)), strict=True):
            if wanted.is_floating_point():
                np.testing.assert_allclose(one.value, wanted.numpy(), rtol=1e-5)
            else:
                assert (one.value.astype(np.int64).astype(str(wanted.dtype)[6:]) == wanted.numpy()).all()


class Every(nn.Module):
    """All functions at once, so that one compilation serves them."""

    def forward(self, far: Tensor, near: Tensor) -> tuple[Any, ...]:
        return *(function(far) for function in OF_FAR.values()), *(function(near) for function in OF_NEAR.values())


@pytest.mark.thorough
def test_kernels_compute_them() -> None:
    module = Every().eval()
    compiled = gensor_gym.compile(module, (FAR, NEAR), trials=1)
    for far, near in ((FAR, NEAR), (FAR.flip(1), NEAR.flip(0)), (FAR.flip(0) + 5, NEAR.flip(1))):
        assert_same(compiled(far, near), module(far, near))


def hashed(ids: Tensor, near: Tensor, table: Tensor) -> tuple[Tensor, ...]:
    """Features by hash, as recommenders make them, and 32 bits that wrap around."""
    place = (ids * 2654435761 + ids // 7) % 11
    return functional.embedding(place, table) @ torch.ones(6, 2), place.amax(1), near * near, (ids >> 20).sum(1)


@pytest.mark.parametrize("options", [{}, {"hardware": "h100", "backend": "emulated"}], ids=["cpu", "emulated"])
def test_a_hash_of_ids_is_torchs(options: dict[str, str]) -> None:
    table = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))
    module = Of(lambda ids, near: hashed(ids, near, table * 1.0)).eval()
    compiled = gensor_gym.compile(module, (FAR, NEAR), trials=1, **options)
    for ids in (FAR, FAR.flip(1) - 3):
        assert_same(tuple(map(torch.as_tensor, compiled(ids, NEAR))), module(ids, NEAR))


def test_bounded_integers_stay_in_float32() -> None:
    """Masks and positions of networks: no kernel of int64, and nothing to check at a call."""
    positions = Of(lambda mask, ids: ((mask != 0).cumsum(1) * (ids == 3), (mask < 5) & (ids > 7))).eval()
    network = from_torch(positions, (FAR, FAR))
    assert not network.graph.whole and not network.limits


def test_integers_without_an_integer_form_are_checked_at_the_call() -> None:
    pooled = Of(lambda x: functional.max_pool2d(x[None, None], 2)).eval()
    small = torch.arange(16).reshape(4, 4)
    compiled = gensor_gym.compile(pooled, (small,), trials=1)
    assert torch.equal(compiled(small - 2**24 + 1), pooled(small - 2**24 + 1))
    with pytest.raises(ValueError, match="has 16777217: expected whole numbers from -16777216 to 16777216"):
        compiled(small + (1 << 24) - 14)


def test_an_input_may_be_ids_and_a_table() -> None:
    """Rows of it that lie outside are nowhere, not in the memory behind a shorter row."""
    table = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    module = Of(lambda ids, places: (functional.embedding(ids, table * 1.0), ids[places % 3].float())).eval()
    given = torch.tensor([3, 1, 2, 0]), torch.tensor([1, 0, 5])
    assert_same(gensor_gym.compile(module, given, trials=1)(*given), module(*given))
