"""Pass torch's DLPack exchange interface and some torch functions to `tensors.c`, which then reads torch tensors."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from gensor_gym.codegen.runtime.function import builtins

_MAJOR = 1
"""Supported major version of DLPack; the layout of its structures is fixed within a major version."""


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI` of the header of DLPack: functions that exchange tensors in C."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("older", "allocate", "share", "make", "describe", "stream")),
    ]  # fmt: skip


class _Torch(ctypes.Structure):
    """`struct gg_torch` of `tensors.c`: torch's types, its exchange interface, and the functions that `tensors.c` calls."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("tensor", "parameter", "exchange", "requires_grad", "is_negated", "are_gradients_on")
    ]


def is_of_torch(value: Any) -> bool:
    """Return whether the type of a value is defined in torch."""
    return type(value).__module__.partition(".")[0] == "torch"


@functools.cache
def know_torch() -> bool:
    """Let compiled calls read torch tensors in place; return False if torch lacks the exchange interface (before 2.10)."""
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
"""Objects to keep alive, because `tensors.c` has their addresses."""


def _exchange_of(kind: type) -> _Exchange | None:
    """Return the DLPack exchange interface of a tensor type in the supported major version.

    The result is None for a type without this interface.
    """
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
