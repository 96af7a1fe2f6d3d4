"""Functions of smaller inputs that run the kernels of a larger network, without Python between them (`sized.c`)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.c import NativeFunction
from gensor_gym.codegen.runtime.memory import ALIGNMENT, address_of, workspace_of
from gensor_gym.codegen.runtime.threads import GgRuntime, pointers
from gensor_gym.networks.load import NetworkFunction, compiled
from gensor_gym.networks.network import Called

Extents = Sequence[tuple[int, int]]
"""Extents of axes, or of factors of axes, in the smaller and in the larger array."""


class _Fit(ctypes.Structure):
    """`struct gg_fit` of `sized.c`."""

    _fields_ = [
        ("axes", ctypes.c_long), ("small", ctypes.c_void_p), ("big", ctypes.c_void_p), ("block", ctypes.c_size_t),
        ("room", ctypes.c_void_p),
    ]  # fmt: skip


class _Sized(ctypes.Structure):
    """`struct gg_sized` of `sized.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("network", "lock", "inputs", "outputs", "given")),
        ("count", ctypes.c_long), ("more", ctypes.c_long), ("workspace", ctypes.c_void_p),
    ]  # fmt: skip


class _Loaded(ctypes.Structure):
    """`struct gg_sized_loaded` of `sized.c`. `kept` keeps the memory alive to which its pointers point."""

    kept: Any

    _fields_ = [("runtime", GgRuntime), ("sized", ctypes.c_void_p)]


class Bucket:
    """A loaded network with memory in which smaller inputs and outputs are padded, which all its sizes use under a lock."""

    def __init__(self, function: NetworkFunction, first: Bucket | None = None) -> None:
        """Allocate memory for all inputs and outputs of a loaded network, and its workspace.

        Calls wait for those of the bucket `first`, with which it shares weights.
        """
        self.function = function
        self.lock: int = function.network_address if first is None else first.lock
        tensors = [*function.called.inputs, *function.called.outputs]
        starts = np.cumsum([0, *(-(-one.nbytes // ALIGNMENT) * ALIGNMENT for one in tensors)])
        self.room, self.workspace = workspace_of(int(starts[-1])), workspace_of(function.layout.workspace_bytes)
        self.rooms = [address_of(self.room) + int(start) for start in starts[:-1]]
        """Address of the larger array of each input, then of each output."""


class SizedFunction(NetworkFunction):
    """A function of smaller inputs, called like a `NetworkFunction`. Calls of all sizes of a bucket wait for one another."""

    def __init__(self, called: Called, bucket: Bucket, given: Sequence[np.ndarray], returned: Sequence[Extents]) -> None:
        """Make the function with the signature `called`. `given` are the last inputs of the bucket's network at this size.

        `returned` has for each output the extents of the factors of all its axes.
        """
        network, self.called = bucket.function.called, called
        count = len(network.inputs) - len(given)
        both = zip(called.inputs, network.inputs, strict=False)
        taken = [(list(zip(one.shape, big.shape, strict=True)), big) for one, big in both]
        pairs = [*taken, *zip(returned, network.outputs, strict=True)]
        rooms = bucket.rooms[:count] + bucket.rooms[len(network.inputs) :]
        kept: list[Any] = [bucket, list(given)]
        fits = (_Fit * len(pairs))(*(_fit(pairs, big, room, kept) for (pairs, big), room in zip(pairs, rooms, strict=True)))
        more, start = pointers(given), ctypes.addressof(fits)
        behind = start + count * ctypes.sizeof(_Fit)
        where = bucket.function.network_address, bucket.lock, start, behind, ctypes.addressof(more)
        sized = _Sized(*where, count, len(given), address_of(bucket.workspace))
        loaded = _Loaded(bucket.function.team, ctypes.addressof(sized))
        loaded.kept = kept, fits, more, sized
        NativeFunction.__init__(self, called, compiled("network.c", "sized.c").gg_sized_entry, loaded, 0)


def _fit(extents: Extents, big: Any, room: int, kept: list[Any]) -> _Fit:
    """Describe how a smaller array lies in the array `big`, without the inner axes that do not change."""
    last = max((axis + 1 for axis, pair in enumerate(extents) if pair[0] != pair[1]), default=0)
    if not last:
        return _Fit(0, None, None, big.nbytes, None)
    rows = [(ctypes.c_long * last)(*some[:last]) for some in zip(*extents, strict=True)]
    kept += rows
    block = big.nbytes // math.prod(most for _, most in extents[:last])
    return _Fit(last, *map(ctypes.addressof, rows), block, room)
