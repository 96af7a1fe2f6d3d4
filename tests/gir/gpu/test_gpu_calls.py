"""Kernels of several outputs called through a stand-in for CuPy: what is returned, filled in and refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gensor_gym.codegen.cuda import nvrtc
from gensor_gym.codegen.runtime import cuda as cuda_load
from gensor_gym.dataflow.suite import make
from tests.codegen.cuda import test_codegen_cuda_load as stand
from tests.support.gir_gpu_cases import kernel_of

OP = make("add_layernorm", m=3, n=40)


def numbered(self: stand.Function, grid: tuple, block: tuple, arguments: Sequence[Any], shared_mem: int) -> None:
    """A launch that writes 1 to the first output and 2 to the second."""
    for number, output in enumerate(arguments[len(OP.inputs) : -1], 1):
        output[...] = number


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> cuda_load.CudaKernel:
    if not nvrtc.is_available():
        pytest.skip(f"NVRTC is not installed: {nvrtc.PACKAGES}")
    kernel = kernel_of(OP, "vector=4 place=reg,reg")
    monkeypatch.setattr(cuda_load, "_LOADED", {})
    monkeypatch.setattr(stand, "KERNEL", kernel)
    monkeypatch.setattr(stand.Function, "__call__", numbered)
    monkeypatch.setitem(sys.modules, "cupy", stand.stand_in([]))
    return cuda_load.load(kernel)


def inputs() -> list[np.ndarray]:
    return [np.ones(tensor.shape, np.float32) for tensor in OP.inputs]


def test_several_outputs_are_a_tuple(loaded: cuda_load.CudaKernel) -> None:
    one, two = loaded(*inputs())
    assert type(one) is np.ndarray and (one == 1).all() and (two == 2).all() and two.shape == (3, 40)
    near = loaded(*map(stand.on_device, inputs()))
    assert all(isinstance(array, stand.OnDevice) for array in near) and (near[1] == 2).all()


def test_own_outputs_are_filled_in(loaded: cuda_load.CudaKernel) -> None:
    own = tuple(np.zeros((3, 40), np.float32) for _ in range(2))
    found = loaded(*inputs(), out=own)
    assert all(a is b for a, b in zip(found, own, strict=True)) and (own[0] == 1).all() and (own[1] == 2).all()
    same = stand.empty((3, 40), "float32")
    with pytest.raises(ValueError, match="outputs overlap, expected memory of its own for each"):
        loaded(*map(stand.on_device, inputs()), out=(same, same))
    with pytest.raises(ValueError, match="out is ndarray, expected a tuple of 2 arrays"):
        loaded(*inputs(), out=own[0])
