"""Convert a training state to JSON and arrays, which can be read without executing code.

JSON objects with a single key represent other values: `map` a dictionary, `tuple` a tuple, `number` a float that is not finite,
`scalar` a NumPy scalar, `array` and `tensor` the name of an array.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def to_tree(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Convert a state to a JSON value and add its arrays to `arrays`. TypeError for a value that is not data."""
    if isinstance(value, torch.Tensor | np.ndarray):
        name = str(len(arrays))
        found = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        arrays[name] = np.array(found, order="C")
        return {"tensor" if isinstance(value, torch.Tensor) else "array": name}
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, to_tree(value.item(), arrays)]}
    if isinstance(value, Mapping):
        return {"map": [[to_tree(key, arrays), to_tree(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | deque):
        return [to_tree(part, arrays) for part in value]
    if isinstance(value, tuple):
        return {"tuple": [to_tree(part, arrays) for part in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state holds {type(value).__name__}; expected numbers, text, lists, dictionaries, arrays and tensors")


def from_tree(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Convert a JSON value back to a state. ValueError for a value that `to_tree` does not write."""
    if isinstance(value, list):
        return [from_tree(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"a state with the keys {sorted(value)[:4]} in one object; expected one of {sorted(_READ)}")
    ((kind, inner),) = value.items()
    if kind not in _READ:
        raise ValueError(f"a state with the key {kind!r}; expected one of {sorted(_READ)}")
    try:
        return _READ[kind](inner, arrays)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"a state whose {kind} does not read: {error!r}") from error


def _scalar(kind: str, value: Any, arrays: Mapping[str, np.ndarray]) -> np.generic:
    if kind not in _NUMBERS:
        raise KeyError(kind)
    return np.dtype(kind).type(from_tree(value, arrays))


_NUMBERS = tuple(np.dtype(code).str for code in "bhiqBHIQfd?")
_READ: dict[str, Any] = {
    "map": lambda pairs, arrays: {from_tree(key, arrays): from_tree(part, arrays) for key, part in pairs},
    "tuple": lambda parts, arrays: tuple(from_tree(part, arrays) for part in parts),
    "number": lambda text, _: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "scalar": lambda pair, arrays: _scalar(pair[0], pair[1], arrays),
    "array": lambda name, arrays: arrays[name],
    "tensor": lambda name, arrays: torch.from_numpy(arrays[name]),
}
