"""Checks whether the results of a torch module depend on values that pad its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as trees

from gensor_gym.frontends.torch_export import Examples
from gensor_gym.networks.forms import put_together, taken_apart
from gensor_gym.networks.network import Network
from gensor_gym.networks.sizes import Axes, cut, padded

AGREE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""Data type -> largest difference between a result with and without padding, as a share of the result's largest magnitude."""


def check_padding(
    module: Any, networks: Sequence[Network], example: Examples, padding: Mapping[str, float], axes: Sequence[Axes]
) -> None:
    """Check that torch's results for the first network's example stay the same if it is padded to the second one's sizes.

    `axes` has the input axes from which outputs get their sizes. ValueError if a result changes.
    """
    smallest, larger = networks[:2]
    places, named = ((), example) if isinstance(example, Mapping) else (example, {})
    given = taken_apart(str(smallest), smallest.takes, places, named)
    forms = {name: put_together(form, padded(given, larger, padding)) for name, form in smallest.takes.items()}
    called = module.module() if isinstance(module, ExportedProgram) else module
    with torch.no_grad():
        both = called(*places, **named), called(**forms) if named else called(*[*forms.values()][: len(places)])
    alone, more = ([one for one in trees.tree_leaves(made) if isinstance(one, torch.Tensor)] for made in both)
    for number, (right, found) in enumerate(zip(alone, cut(more, axes, [tuple(one.shape) for one in given]), strict=True)):
        right, found = right.double(), found.double()
        most, error = (float(one.abs().max()) if one.numel() else 0.0 for one in (right, found - right))
        if not error <= AGREE[smallest.dtype] * most:
            raise ValueError(
                f"output {number} depends on padding: it changes by {error:.3g}, and is at most {most:.3g}; expected a causal "
                f"module, or a mask among the inputs {', '.join(smallest.takes)}"
            )
