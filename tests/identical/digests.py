"""Digests of values: sixteen hexadecimal digits that are the same on every machine.

Integers, texts and bytes count exactly. Times of the model count to six digits and observations in whole steps, since
processors, compilers and libraries differ in the last bits of logarithms and sums.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

STEP = 2.0**-12
"""Observations count in whole steps of this size."""
OFF_CENTRE = 0.37
"""Of a step: logarithms of powers of two stand on whole and half steps, and would fall to either side."""
PLACES = 6
"""Decimal places of rewards, which are differences of logarithms."""


def of_bytes(data: bytes) -> str:
    """Digest of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def of(value: object) -> str:
    """Digest of what JSON can say: texts, whole numbers, and floats that were made text (`six`)."""
    return of_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def six(seconds: float) -> str:
    """Six significant digits of a time or a statistic."""
    return f"{float(seconds):.5e}"


def reward(value: float) -> float:
    """A reward, rounded; never minus zero."""
    return round(float(value), PLACES) + 0.0


def observed(observation: Any) -> list[Any]:
    """An observation of any kind, floats in whole steps."""
    if isinstance(observation, GraphInstance):
        return [observed(part) for part in observation if part is not None]
    if isinstance(observation, Mapping):
        return [[name, observed(observation[name])] for name in sorted(observation)]
    array = np.asarray(observation)
    if array.dtype.kind == "f":
        array = np.floor(array.astype(np.float64) / STEP + OFF_CENTRE).astype(np.int64)
    return [list(array.shape), array.astype(np.int64).ravel().tolist()]
