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


class FreshInputs:
    """Draws inputs of an operator. `drawn` are inputs of one draw, whose numbers are used again."""

    def __init__(self, op: Operator, drawn: Sequence[np.ndarray]) -> None:
        self._op = op
        special = bool(getattr(op, "spreads", {})) or bool(op.id_limits)
        self._simple = not special and all(t.dtype in (*_BLENDED, "int8") for t in op.inputs)
        self._normal: list[np.ndarray] = []
        for tensor, array in zip(op.inputs, drawn, strict=True):
            if self._simple and tensor.dtype != "int8":
                once = decode(array, tensor.dtype).astype(np.float32).reshape(-1) * np.float32(_NORMAL)
                self._normal.append(np.concatenate([once, once]))
            else:
                self._normal.append(np.empty(0, np.float32))

    def draw(self, calls: int) -> list[np.ndarray]:
        """Return new inputs of `calls` calls: for each input an array [calls, *shape]."""
        random = np.random.SFC64(secrets.randbits(128))
        if not self._simple:
            sets = [random_inputs(self._op, np.random.Generator(random)) for _ in range(calls)]
            return [np.stack(arrays) for arrays in zip(*sets, strict=True)]
        found = []
        for tensor, normal in zip(self._op.inputs, self._normal, strict=True):
            shape, size = (calls, *tensor.shape), len(normal) // 2
            if tensor.dtype == "int8":
                count = calls * int(np.prod(tensor.shape))
                found.append(random.random_raw(-(-count // 8)).view(np.int8)[:count].reshape(shape))
                continue
            whole = random.random_raw(-(-calls * size // 2)).view(np.int32)[: calls * size].reshape(calls, size)
            values = np.empty((calls, size), np.float32)
            np.multiply(whole, np.float32(_UNIFORM), out=values, dtype=np.float32, casting="unsafe")
            first = secrets.randbelow(size)
            values += normal[first : first + size]
            found.append(encode(values, tensor.dtype).reshape(shape))
        return found
