"""Random graphs over rows that compute in int64: every function of integers, inputs of every type, sums and maxima of rows."""

from __future__ import annotations

import re

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.scalars import SCALARS
from gensor_gym.dataflow.text import parse
from gensor_gym.dataflow.whole import WHOLE

NUMBERS = ("0", "1", "-1", "2", "7", "-3", "255", "2654435761", str(2**32), str(2**62 + 1), str(-(2**63)), str(2**64 - 59))


def random_integers_dataflow(seed: int, most: int = 10) -> Dataflow:
    """A graph of up to so many lines over rows of small awkward extents."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.choice([1, 2, 3, 5, 7])), int(rng.choice([1, 2, 5, 16, 19, 33]))
    types = {"a": "int64", "b": "int32", "c": "int64", "d": "bool", "e": "float32"}
    shapes = {"c": [m, 1], "e": [1, n]}
    kinds = {name: f"{kind}{shapes.get(name, [m, n])}" for name, kind in types.items()}
    lines = {"v0": "a + 1"}
    for number in range(1, int(rng.integers(3, most))):
        if rng.integers(4) == 0:
            source = rng.choice([one for one in lines if one[0] == "v"])
            lines[f"s{number}"] = f"reduce_{rng.choice(['sum', 'max'])}({source}, axes=[1])"
            lines[f"v{number}"] = f"s{number} - a"
            continue
        function = str(rng.choice(list(WHOLE)))
        values = [*kinds, *lines]
        others = [str(rng.choice([*values, *NUMBERS])) for _ in range(SCALARS[function].arity - 1)]
        lines[f"v{number}"] = f"{function}({', '.join([str(rng.choice(values)), *others])})"
    read = set(re.findall(r"\w+", " ".join(lines.values())))
    inputs = ", ".join(f"{name}: {kind}" for name, kind in kinds.items() if name in read)
    made = "".join(f"    {name}: int64 = {text}\n" for name, text in lines.items())
    returns = ", ".join(name for name in lines if name not in read)
    return parse(f"def integers_{seed}({inputs}):\n{made}    return {returns}\n")
