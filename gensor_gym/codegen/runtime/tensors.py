"""Torch tensors for `tensors.c`: the address of torch's DLPack exchange interface, and the functions used from it."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from gensor_gym.codegen.runtime.function import builtins

_MAJOR = 1
"""Major version of DLPack, within which structures do not change."""


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("older", "allocate", "share", "make", "describe", "stream")),
    ]  # fmt: skip


class _Torch(ctypes.Structure):
    """`struct gg_torch`."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("tensor", "parameter", "exchange", "requires_grad", "is_negated", "are_gradients_on")
    ]


def is_of_torch(value: Any) -> bool:
    """Whether a value is a tensor that calls may read where it lies, once torch is known."""
    return type(value).__module__.partition(".")[0] == "torch"


@functools.cache
def know_torch() -> bool:
    """Let calls read tensors of the imported torch without Python; False for a torch without the interface (< 2.10)."""
    torch: Any = sys.modules["torch"]
    exchange = _exchange_of(torch.Tensor)
    if exchange is None or not (exchange.describe and exchange.make):
        return False
    asked = ("requires_grad", torch.Tensor.is_neg, torch.is_grad_enabled)
    _kept.extend(asked)
    of_torch = _Torch(id(torch.Tensor), id(torch.nn.Parameter), ctypes.addressof(exchange), *map(id, asked))
    builtins().gg_torch_init(ctypes.byref(of_torch))
    return True


_kept: list[object] = []
"""Objects whose addresses `tensors.c` has."""


def _exchange_of(kind: type) -> _Exchange | None:
    """The interface of a type of tensors, of the version that is known; None if it has none."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer_of(capsule, b"dlpack_exchange_api")
    while address:
        found = _Exchange.from_address(address)
        if found.major == _MAJOR:
            return found
        address = found.older
    return None
