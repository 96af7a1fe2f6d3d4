"""Converts constant tensors of torch to NumPy arrays and numbers."""

from __future__ import annotations

import math

import numpy as np
import torch

from gensor_gym.dataflow.expressions import MOST_IN_FLOAT64
from gensor_gym.frontends.unsupported import refusing


def constant_output(tensor: torch.Tensor, place: int) -> np.ndarray:
    """Convert a constant output to a float32 or int64 array. Unsupported if neither is exact.

    `place` is the output's index, for the message.
    """
    if tensor.dtype in (torch.float32, torch.int64):
        found: np.ndarray = tensor.detach().contiguous().numpy()
        return found
    with refusing(f"output {place}: "):
        made = np.asarray(as_array(tensor), np.float32)
        if not torch.equal(tensor.nan_to_num(), torch.from_numpy(made).to(tensor.dtype).nan_to_num()):
            raise ValueError(f"a constant of {tensor.dtype}: expected what float32 holds")
        return made


def _number(whole: int) -> int | float:
    """Convert an integer to a float if float64 represents it exactly; else return it unchanged."""
    return float(whole) if abs(whole) <= MOST_IN_FLOAT64 else whole


def as_array(tensor: torch.Tensor) -> np.ndarray | float:
    """Convert a tensor to a float32 or int64 array, or to a number if it has no axes.

    ValueError for a data type that neither represents.
    """
    if tensor.is_complex() or tensor.is_quantized or tensor.dtype == torch.uint64:
        raise ValueError(f"a constant of {tensor.dtype}: expected real numbers, or integers of at most 63 bits")
    if not tensor.is_floating_point() and tensor.dtype != torch.bool:
        whole: np.ndarray = tensor.detach().to(torch.int64).contiguous().numpy()
        return whole if tensor.dim() else _number(whole.item())
    if tensor.dim() == 0:
        if not math.isnan(number := float(tensor)):  # expressions cannot print NaN
            return number
    array: np.ndarray = tensor.detach().to(torch.float32).contiguous().numpy()
    return array
