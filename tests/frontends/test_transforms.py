"""Discrete Fourier transforms as products with constant matrices, and the complex numbers between them, as torch has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, fft

import gensor_gym
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.frontends.torch_export import from_torch
from gensor_gym.frontends.unsupported import Unsupported
from gensor_gym.networks.folding import folded
from tests.frontends.test_torch_export import Of
from tests.support.thorough import thorough_but

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
W = torch.randn(2, 5, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "real part along two axes": lambda x: fft.fftn(x, dim=(1, 2)).real,
    "filtered": lambda x: fft.irfftn(fft.rfftn(x, dim=(1, 2), norm="ortho") * W, s=(5, 6), dim=(1, 2), norm="ortho"),
    "odd length": lambda x: fft.irfft(fft.rfft(x, dim=-2), n=5, dim=1) + fft.irfft(fft.rfft(x), n=3).sum(),
    "lengths": lambda x: fft.rfft(x).abs() + fft.rfft(x, norm="forward").imag * 2,
    "there and back": lambda x: fft.ifft2(fft.fft2(x) * (0.5 + 2j)).imag,
    "powers": lambda x: (fft.fft(x, dim=0) * fft.fft(x, dim=0).conj()).real + torch.view_as_real(fft.fft(x) - x).sum(-1),
    "moved": lambda x: fft.fftshift(fft.fft(x), dim=1).transpose(1, 2)[:, 1:].reshape(-1).abs(),
    "added": lambda x: torch.view_as_real(fft.fft(x) + x * 2).sum(-1) - (x - fft.fft(x) * 3).imag,
    "times whole numbers": lambda x: (fft.rfft(x) * torch.arange(4)).real + (fft.rfft(x) + torch.arange(4).int()).abs(),
    "of complex inputs": lambda x: fft.fft(torch.view_as_complex(x.reshape(2, 5, 3, 2)), norm="ortho").abs(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_torch(name: str) -> None:
    function = FUNCTIONS[name]
    network, expected = from_torch(Of(function).eval(), (X,)), function(X).numpy()
    (found,) = folded(network).reference(X.numpy())
    np.testing.assert_allclose(found.value, expected, rtol=1e-5, atol=1e-5)
    assert (np.abs(found.value - expected) <= found.error + 1e-5).all()


@pytest.mark.parametrize("name", thorough_but(FUNCTIONS, "real part along two axes"))
def test_kernels_against_torch(name: str) -> None:
    function = FUNCTIONS[name]
    found = gensor_gym.compile(Of(function).eval(), (X,), trials=1)(X)
    torch.testing.assert_close(found, function(X), rtol=1e-5, atol=2e-5)


def test_only_parts_that_are_read_are_computed() -> None:
    """Both parts along the first axis, and of them the real part along the second."""
    network = folded(from_torch(Of(FUNCTIONS["real part along two axes"]).eval(), (X,)))
    assert sum(isinstance(node, Contract) for node in network.nodes.values()) == 4


@pytest.mark.parametrize(("function", "said"), [
    (fft.fft, "output 0 is torch.complex64 on cpu: expected a tensor of real numbers"),
    (lambda x: (fft.rfft(x) * W.to(torch.complex128)).abs(), "mul.Tensor: makes a tensor of torch.complex128: expected float32"),
    (lambda x: fft.rfft(x).to(torch.complex32).real, "_to_copy.default: makes a tensor of torch.complex32: expected float32"),
    (lambda x: fft.rfft(x).to(torch.int16), "_to_copy.default: makes a tensor of torch.int16: expected float32"),
    (lambda x: fft.fft(x, n=5000).real, "a Fourier transform of 5000 elements: expected at most 4096"),
])  # fmt: skip
def test_others_are_refused_by_name(function: Callable[[Tensor], Tensor], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        from_torch(Of(function).eval(), (X,))


def test_a_complex_constant_is_kept_once() -> None:
    network = from_torch(Of(lambda x: torch.view_as_real(fft.rfft(x) * W + W)).eval(), (X,))
    assert sum(value.shape == W.shape for value in network.graph.inputs) == 2


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_casts_of_complex_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor([[1.7, 0.0], [-2.6, 1.0], [0.0, 3.0], [0.0, 0.0], [0.3, -0.2]])
    network = from_torch(Of(lambda x: torch.view_as_complex(x).to(dtype).float() * 3).eval(), (x,))
    (found,) = folded(network).reference(x.numpy())
    np.testing.assert_array_equal(found.value, torch.view_as_complex(x).to(dtype).float() * 3)


def test_lengths_of_large_and_small_numbers() -> None:
    inf = float("inf")
    x = torch.tensor([[inf, inf], [-inf, 1.0], [0.0, -inf], [0.0, 0.0], [3e38, 0.0], [1e-30, 1e-30], [3.0, -4.0]])
    function = Of(lambda x: torch.view_as_complex(x).abs()).eval()
    expected = function(x).numpy()
    (found,) = folded(from_torch(function, (x,))).reference(x.numpy())
    np.testing.assert_allclose(found.value, expected, rtol=1e-6)
    np.testing.assert_allclose(gensor_gym.compile(function, (x,), trials=1)(x), expected, rtol=1e-6)
