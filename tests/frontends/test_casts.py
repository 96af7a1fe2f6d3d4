"""Outputs of data types without kernels: cast where they leave, as torch casts them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import gensor_gym
from gensor_gym.frontends.casts import name_of
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.networks.forms import typed
from tests.frontends.test_torch_export import Of

X = torch.tensor([[0.1, -1.7, 3.5, 70000.0, 1e-9], [float("inf"), float("nan"), 2.5, 255.9, 1e39]])
IDS = torch.tensor([[3, -1, 300, 70000, 1 << 24], [0, 127, 128, -129, 65536]])
TYPES = (torch.float16, torch.bfloat16, torch.float64, torch.complex32, torch.complex64, torch.complex128)
NARROW = (torch.uint8, torch.int8, torch.int16)


def _all(x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
    few = torch.clamp(x, -100, 100)
    return (
        *(x.to(kind) for kind in TYPES), *(few[:, ::2].to(kind) for kind in NARROW[1:]), few.abs().byte(),
        *(ids.to(kind) for kind in (*TYPES, *NARROW)), (x > 0).half(), (x > 0).byte(), x.half().float(),
        x.double().float() + 1, ids.short().double(), x.T.contiguous().half().reshape(-1)[2:], x + 1,
        torch.arange(3, dtype=torch.float64),
    )  # fmt: skip


@pytest.mark.thorough
def test_outputs_are_cast_as_torch_casts_them() -> None:
    finite = X.nan_to_num(5.0, 6.0, 7.0)
    for x in (X, finite):  # what no whole number stands for is not compared
        expected, found = (made(x, IDS) for made in (_all, gensor_gym.compile(Of(_all).eval(), (x, IDS), trials=1)))
        for place, (wanted, made) in enumerate(zip(expected, found, strict=True)):
            assert made.dtype == wanted.dtype, place
            if x is finite or place not in (6, 7, 8):
                kind = torch.complex128 if wanted.is_complex() else torch.float64
                assert torch.equal(torch.nan_to_num(made.to(kind)), torch.nan_to_num(wanted.to(kind))), place
    doubles = gensor_gym.compile(Of(lambda ids: ids.double()).eval(), (IDS,), trials=1)
    assert torch.equal(doubles(IDS + 2**40 + 1), (IDS + 2**40 + 1).double())


@pytest.mark.parametrize("function", [
    lambda x: (x.half(), x.bfloat16(), x.clone()),
    lambda x: (x.clone(), x.bfloat16(), x.half()),
    lambda x: (torch.sum(x, 1, dtype=torch.float16), x.sum(1), torch.sum(x, 1, dtype=torch.bfloat16)),
])  # fmt: skip
def test_values_rounded_to_several_types_are_several(function: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    x = torch.randn(3, 5)
    graph = from_torch(Of(function).eval(), (x,)).graph
    rounded = dict(graph.rounded)
    types = [rounded.get(graph.behind(name)[-1], "float32") for name in graph.returns]
    assert types == [name_of(one.dtype) for one in function(x)]


def test_of_numpy_what_numpy_has() -> None:
    made = typed({0: ("float16",), 1: ("int64", "uint8")}, [np.float32([1.5]), np.float32([300.0])])
    assert (made[0].dtype, made[1].dtype, made[1][0]) == (np.float16, np.uint8, 44)
    with pytest.raises(ValueError, match="bfloat16 as a NumPy array"):
        typed({0: ("bfloat16",)}, [np.float32([1.5])])
