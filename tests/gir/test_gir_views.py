"""Views of tensors: which reshapes are views, and what they read."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gensor_gym.gir.views import View


def some_view(rng: random.Random, base: np.ndarray) -> np.ndarray:
    """A view after a few moves."""
    for _ in range(rng.randint(0, 3)):
        axis = rng.randrange(base.ndim)
        match rng.randint(0, 2):
            case 0:
                base = base.transpose(rng.sample(range(base.ndim), base.ndim))
            case 1:
                first = rng.randrange(base.shape[axis])
                last = rng.randint(first + 1, base.shape[axis])
                base = base[(slice(None),) * axis + (slice(first, last),)]
            case _ if base.ndim < 7:
                base = np.expand_dims(base, axis)
    return base


def some_shape(rng: random.Random, size: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    found: list[int] = []
    while size > 1 and len(found) < 5:
        found.append(rng.choice([extent for extent in range(1, size + 1) if size % extent == 0]))
        size //= found[-1]
    return (*found, size)


@pytest.mark.parametrize("seed", range(20))
def test_a_reshape_is_a_view_where_numpy_needs_no_copy(seed: int) -> None:
    rng, base = random.Random(seed), np.arange(720).reshape(2, 3, 4, 6, 5)
    for _ in range(50):
        array = some_view(rng, base)
        to = some_shape(rng, array.size)
        offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
        given = View("x", offset, array.shape, tuple(stride // base.itemsize for stride in array.strides))
        made, needs_no_copy = given.reshaped(to), np.shares_memory(array.reshape(to), base)
        assert (made is not None) == needs_no_copy
        if made is not None:
            strides = [stride * base.itemsize for stride in made.strides]
            read = np.lib.stride_tricks.as_strided(base.reshape(-1)[made.offset :], made.shape, strides)
            np.testing.assert_array_equal(read, array.reshape(to))
