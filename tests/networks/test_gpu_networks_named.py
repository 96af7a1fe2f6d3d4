"""Gensor's five networks, narrow and short, whole in the emulator of GPUs, within the bounds that are propagated node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agents.modules import compile_module  # noqa: E402
from experiments.networks import attention, convolutional, suite  # noqa: E402
from gensor_gym.networks.gpu.emulated import EmulatedNetwork  # noqa: E402

SMALL = {"layers": 2, "width": 64, "heads": 2, "words": 50}
IDS, IMAGE = suite.Ids((12,), 50), (3, 32, 32)
LARGEST = {"float32": 1e-5, "bfloat16": 5e-2}
"""Largest error in units of the largest result: bounds through a normalisation may be infinite, since its variance may be 0."""
Small = tuple[Callable[[], Any], tuple[Any, ...]]
NETWORKS: dict[str, Small] = {
    "resnet34": (lambda: convolutional.resnet((3, 4, 6, 3), deep=False, first=8), (IMAGE,)),
    "resnet50": (lambda: convolutional.resnet((3, 4, 6, 3), deep=True, first=8), (IMAGE,)),
    "mobilenet_v2": (lambda: convolutional.mobilenet_v2(narrower=4), (IMAGE,)),
    "bert": (lambda: attention.bert_of_ids(**SMALL), (IDS, suite.Ids((12,), 2), suite.Ids((12,), 2, 1))),
    "gpt2": (lambda: attention.gpt2_of_ids(**SMALL), (IDS,)),
}


def as_doubles(array: Any) -> np.ndarray:
    """Numbers of an array of NumPy or torch, float64."""
    return np.asarray(torch.as_tensor(array).double())


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_named_networks_are_right_in_the_emulator(name: str, kind: str) -> None:
    build, wanted = NETWORKS[name]
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    module = suite.as_used(build()).to(dtype)
    given = [one.to(dtype) if one.is_floating_point() else one for one in suite.drawn(wanted)]
    compiled = compile_module(module, given, hardware="h100", backend="analytic", trials=1, reuse=False)
    found = EmulatedNetwork(compiled.plan, compiled.kernels)(*given)  # compiles all kernels at once
    network = compiled.plan.network
    expected = network.reference(*(as_doubles(one) if one.is_floating_point() else one.numpy() for one in given))
    for made, one in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        errors = np.abs(as_doubles(made) - one.value)
        assert (errors <= one.error).all()
        assert errors.max() <= LARGEST[kind] * np.abs(one.value).max()
