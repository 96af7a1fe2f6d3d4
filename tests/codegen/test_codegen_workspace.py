"""Workspaces hold no denormal numbers, which recycled memory is full of, before a kernel writes to them."""

from __future__ import annotations

import numpy as np

from gensor_gym import ConstructionGraph, codegen, operators
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.runtime.memory import workspace_of

OPERATOR = "conv2d(n=1, c=24, h=19, w=19, k=24, r=3, s=3, padding=2, dilation=2)"


def shifted() -> BuiltKernel:
    """A shifted product, part of whose workspace is read and never written."""
    graph, rng = ConstructionGraph(OPERATOR, "host", "extended"), np.random.default_rng(0)
    drawn = (graph.random_schedule(rng) for _ in range(2000))
    chosen = (s for s in drawn if s.knob("convolution") == 2 and s.knob("pack_a") == 1 and s.knob("pack_b") == 0)
    return codegen.build(OPERATOR, next(chosen), "host")


def recycled(size: int) -> None:
    """Leave memory of that size behind that is full of denormal numbers, for the next who asks for as much."""
    dirty = [np.full(size // 4, 1, np.int32) for _ in range(8)]
    del dirty


def test_a_workspace_is_zero_whatever_its_memory_held() -> None:
    for size in (64, 1000, 100_000):
        recycled(size + 64)
        space = workspace_of(size)
        assert space.nbytes == size and space.ctypes.data % 64 == 0 and not space.any()


def test_what_a_kernel_does_not_write_stays_zero() -> None:
    """Called and bound: no word of the workspace is a denormal number after a call."""
    kernel = shifted().loaded
    inputs = operators.random_inputs(kernel.kernel.operator, np.random.default_rng(0))
    recycled(kernel.kernel.workspace_bytes + 64)
    kernel(*inputs)
    bound = kernel.bind(*inputs)
    bound()
    for space in (kernel._builtin.workspaces[0], bound._kept[2]):
        words = space[: space.size // 4 * 4].view(np.float32)
        small = (words != 0) & (np.abs(words) < np.finfo(np.float32).tiny)
        assert words.any() and not small.any()
