"""Times of several ways to call a network, in interleaved rounds of one process and one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from gensor_gym import hardware

AGREE = 1e-3
"""Largest absolute difference from torch's results that is allowed."""
Side = Callable[..., Any]
"""A way to call a network. It returns tensors or arrays, which may be nested in lists and tuples."""


def use_one_thread(config: DictConfig) -> None:
    """Let torch compute in one thread, and set its seed.

    Raise ValueError unless our kernels have one thread, too, because torch's idle threads disturb other threads of the process.
    """
    if hardware.get(config.hardware) != hardware.get("host") or (threads := hardware.get("host").units) != 1:
        raise ValueError(f"{config.hardware} of {threads} threads: expected the host and GENSOR_GYM_THREADS=1")
    torch.set_num_threads(1)
    torch.manual_seed(config.seeds[0])


def timed(sides: Mapping[str, Side], given: Sequence[Any], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a call of each side in every round. ValueError if a result differs from that of side `eager`."""
    wanted = _flat(sides["eager"](*given))
    for name, side in sides.items():
        error = max(float((made - one).abs().max()) for made, one in zip(_flat(side(*given)), wanted, strict=True))
        if not error <= AGREE:
            raise ValueError(f"{name} differs from torch by {error:.3g}: expected at most {AGREE}")
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            begin = time.perf_counter()
            side(*given)
            found[name].append(time.perf_counter() - begin)
    return found


def _flat(made: Any) -> list[Tensor]:
    return [one for part in made for one in _flat(part)] if isinstance(made, list | tuple) else [torch.as_tensor(made)]
