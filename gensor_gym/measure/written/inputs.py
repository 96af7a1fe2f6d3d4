"""Inputs of timed calls: random numbers that no earlier call has seen, drawn within two nanoseconds each.

A float is the sum of a new uniform number and a normal number of the verified draw, at a random place. Their variances are 0.36
and 0.64, so the sum is distributed almost like the draw. Generators start from the system's random numbers for each burst: a
kernel that has seen some inputs does not know the next ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from gensor_gym.operators.inputs import decode, encode, random_inputs
from gensor_gym.operators.types import Operator

_UNIFORM, _NORMAL = 0.6 * 3**0.5 * 2.0**-31, 0.8
"""Factors of a random int32, and of a standard normal number, whose sum has variance 1."""
_BLENDED = ("float32", "float16", "bfloat16")


_CHUNK = 1 << 16
"""Number of elements that are drawn at once. Larger arrays would evict the kernel's buffers from the processor's caches."""


class FreshInputs:
    """Draws inputs of an operator. `drawn` are inputs of one draw, whose numbers are used again."""

    def __init__(self, op: Operator, drawn: Sequence[np.ndarray]) -> None:
        self._op = op
        special = bool(getattr(op, "spreads", {})) or bool(op.id_limits)
        self._simple = not special and all(t.dtype in (*_BLENDED, "int8") for t in op.inputs)
        self._room = [np.empty(0, np.float32) for _ in op.inputs]
        self._normal = [np.empty(0, np.float32) for _ in op.inputs]
        for number, (tensor, array) in enumerate(zip(op.inputs, drawn, strict=True)):
            if self._simple and tensor.dtype != "int8":
                values = decode(array.reshape(-1)[:_CHUNK], tensor.dtype).astype(np.float32)
                self._normal[number] = np.resize(values * np.float32(_NORMAL), 2 * _CHUNK)

    def draw(self, calls: int) -> list[np.ndarray]:
        """Return new inputs of `calls` calls: for each input an array [calls, *shape]. The next draw may overwrite it."""
        random = np.random.SFC64(secrets.randbits(128))
        if not self._simple:
            sets = [random_inputs(self._op, np.random.Generator(random)) for _ in range(calls)]
            return [np.stack(arrays) for arrays in zip(*sets, strict=True)]
        found = []
        for number, tensor in enumerate(self._op.inputs):
            count = calls * int(np.prod(tensor.shape))
            if tensor.dtype == "int8":
                values = random.random_raw(-(-count // 8)).view(np.int8)[:count]
            else:
                values = encode(self._blended(number, count, random), tensor.dtype)
            found.append(values.reshape(calls, *tensor.shape))
        return found

    def _blended(self, number: int, count: int, random: np.random.SFC64) -> np.ndarray:
        """Return `count` new float32 of an input. They are in memory that is used again."""
        if len(self._room[number]) < count:
            self._room[number] = np.empty(count, np.float32)
        values = self._room[number][:count]
        for first in range(0, count, _CHUNK):
            part = values[first : first + _CHUNK]
            whole = random.random_raw(-(-len(part) // 2)).view(np.int32)[: len(part)]
            np.multiply(whole, np.float32(_UNIFORM), out=part, dtype=np.float32, casting="unsafe")
            place = secrets.randbelow(_CHUNK)
            part += self._normal[number][place : place + len(part)]
        return values
