"""Random convolutions by Winograd's algorithm, their kernels, and what is wrong with an answer."""

from __future__ import annotations

import dataclasses

import numpy as np

from gensor_gym.codegen.build import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.operators.text import parse
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.graph import WinogradGraph
from tests.support.c_cases import machine

STAGES = ("bias", "relu", "residual", "gelu", "scale")


def winograd(h: int, w: int, c: int, k: int, more: str = "", end: str = "", n: int = 1, result: str = "nhwc") -> Operator:
    """A convolution by Winograd's algorithm; `more` are further arguments, `end` the text of its epilogue."""
    size = f"n={n}, c={c}, h={h}, w={w}, k={k}, r=3, s=3{', ' if more else ''}{more}"
    return parse(f'conv2d({size}, image="nhwc", result="{result}", winograd=2){end}')


def random_winograd(rng: np.random.Generator) -> Operator:
    """A convolution of awkward extents, half of the time with constant weights and with an epilogue."""
    n, c, k = (int(rng.choice(some)) for some in ((1, 1, 2, 3), (1, 3, 8, 16, 17, 33), (1, 5, 8, 16, 24, 40, 64)))
    h, w = (int(rng.choice((3, 4, 5, 6, 7, 9, 12, 13, 20))) for _ in range(2))
    padding = tuple(int(one) for one in rng.integers(0, 3, 2))
    names = rng.choice(STAGES, int(rng.integers(0, 4)))
    op = winograd(h, w, c, k, f"padding={padding}", "".join(f"+{name}" for name in names), n, str(rng.choice(("nhwc", "nchw"))))
    return op.freeze() if rng.random() < 0.5 else op


def random_kernel(seed: int) -> Kernel:
    """A kernel of a random schedule, for vectors of one of three widths."""
    rng = np.random.default_rng(seed)
    op, hw = random_winograd(rng), machine(int(rng.choice((16, 16, 8, 4))))
    hw = dataclasses.replace(hw, units=int(rng.choice((2, 2, 8))))
    return generate(op, WinogradGraph(op, hw).random_schedule(rng), hw)
