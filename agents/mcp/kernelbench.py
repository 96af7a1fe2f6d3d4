"""A file in KernelBench's format (arXiv 2502.10517) as one operator: a task of `Kernel-v0`."""

from __future__ import annotations

import os
import runpy

from gensor_gym.networks.fusion.fine import fine
from gensor_gym.operators.text import names as kinds
from gensor_gym.operators.types import Operator

NAMES = ("Model", "get_inputs", "get_init_inputs")
"""What a file defines: a class of modules, and functions that return the inputs of a call and the arguments of the class."""


def operator_of(file: str | os.PathLike[str]) -> Operator:
    """Return the operator that computes a file's module for its inputs. Weights are inputs, in the layout of the operator.

    The file runs with your rights. ValueError if it lacks a name, if the front end does not cover the module, or if the module
    needs another kernel, except for the layout of weights. ImportError without torch.
    """
    try:
        from gensor_gym.frontends.torch_export import from_torch
    except ModuleNotFoundError as error:
        raise ImportError(f"a file of KernelBench needs {error.name}: pip install 'gensor_gym[lab]'") from error

    found = runpy.run_path(os.fspath(file))
    if missing := [name for name in NAMES if name not in found]:
        raise ValueError(f"{file} has no {', '.join(missing)}: expected {', '.join(NAMES)}")
    module = found["Model"](*found["get_init_inputs"]()).eval()
    network = from_torch(module, tuple(found["get_inputs"]()))
    steps = [step for step in fine(network).steps if not set(step.reads) <= network.constants.keys()]
    if len(steps) != 1 or not isinstance(steps[0].computation, Operator):
        kernels = ", ".join(str(step.computation) for step in steps)
        raise ValueError(f"{file} needs {len(steps)} kernels ({kernels}): expected one of {', '.join(kinds())}")
    return steps[0].computation.renamed(frozen=False)
