"""Times several kernels of one operator together, in rounds of random order, so that the machine's drift affects all alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from gensor_gym.measure.answers.draw import Expected
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.stats.timing import Timer, TimingRules, calls_per_sample, sample, warm_up
from gensor_gym.measure.workers.requests import CompareRequest
from gensor_gym.measure.workers.trial import BaselineKind, Device, alone, check, opened
from gensor_gym.operators.computation import Computation
from gensor_gym.operators.types import Operator

_PAUSE = 8e-3
"""Seconds between the calls of two kernels, in which the thread pool of the first stops spinning (libgomp spun for 5.6 ms).

There is no pause with a single thread, and none on a GPU.
"""

_WARM_CALLS, _WARM_SECONDS = 8, 60e-3
"""Number of untimed calls of a kernel after another kernel was timed, and about how many seconds they take at most.

A last-level cache of 260 MB fills again within some eight calls. A product with 64 MB of weights took 6.7, 6.3, 5.8, .., 3.7 ms
when timed alternately with torch, which took 6.0, 4.9, 4.7, .., 4.5 ms.
"""

ANCHOR = "anchor"
"""Name under which a comparison returns the samples of the drift anchor, a fixed kernel."""


class WrongInComparison(ValueError):
    """A kernel in a comparison gave a wrong answer, so comparing its times would be meaningless."""


def run_comparison(
    device: Device, cache: ExpectationCache, request: CompareRequest, announce: Callable[[str], None]
) -> dict[str, list[float]]:
    """Verify and time all kernels of a comparison. Return the seconds per call by name, one sample for each round, in order.

    All kernels are verified first, on the same inputs. Torch is timed too if requested, in each layout that the device supports.
    An operator with constant weights is compared with oneDNN's kernel with packed weights instead, as `torch.prepacked`.
    ValueError if an answer is wrong or the operators differ.
    """
    operators = {built.kernel.operator for _, built in request.built}
    if len(operators) != 1:
        raise ValueError(f"a comparison takes kernels of one operator, got {sorted(map(str, operators))}")
    op = operators.pop()
    plain = device.kinds(op) if request.torch_threads is not None else ()
    kinds = _baselines(request, isinstance(op, Operator) and op.frozen, plain)
    announce("reference")
    draw = cache.get(op, request.seed)[0]
    with ExitStack() as stack:
        stack.enter_context(alone(device, device.exclusive, announce))
        timers: dict[str, Timer] = {}
        for name, built in request.built:
            announce("load")
            loaded = stack.enter_context(opened(device, built, request.threads))
            announce("verify")
            loaded.write(draw)
            loaded.time(1)
            if fault := check(loaded, draw):
                raise WrongInComparison(f"{name}: {fault}")
            loaded.copy_weights(request.apart)
            timers[name] = loaded.time
        for kind in kinds:
            announce("start")
            timers[kind] = _torch_timer(device, op, draw, request.torch_threads or 1, kind)
        if request.anchor:
            timers[ANCHOR] = _anchor(device, timers)
        with alone(device, not device.exclusive, announce), device.steady():
            pause = _PAUSE if not device.exclusive and (request.threads > 1 or kinds) else 0.0
            return _interleave(timers, request.rounds, request.rules, request.seed, pause, announce)


def _anchor(device: Device, timers: dict[str, Timer]) -> Timer:
    """Return the function that times the device's drift anchor, a fixed kernel.

    ValueError if the device has no drift anchor, or if a kernel is called `anchor`.
    """
    if device.anchor is None or ANCHOR in timers:
        raise ValueError("no anchor" if device.anchor is None else f"the name {ANCHOR!r} is taken by the anchor")
    return device.anchor.timer


def _baselines(request: CompareRequest, frozen: bool, plain: tuple[BaselineKind, ...]) -> list[BaselineKind]:
    kinds: list[BaselineKind] = []
    if request.torch_threads is not None:
        kinds += ["torch.prepacked"] if frozen else plain
    return [*kinds, "torch.compile"] if request.torch_compile else kinds


def _torch_timer(device: Device, op: Computation, draw: Expected, threads: int, kind: BaselineKind) -> Timer:
    baseline = device.baseline(op, draw, threads, kind)
    if fault := baseline.fault(draw):
        raise WrongInComparison(f"{kind}: {fault}")
    return baseline.time


def _interleave(
    timers: dict[str, Timer], rounds: int, rules: TimingRules, seed: int, pause: float, announce: Callable[[str], None]
) -> dict[str, list[float]]:
    """Time all kernels once in each round, in random order. Return the samples by name, in seconds per call.

    Untimed calls before each sample wake threads and bring data back into caches. `pause` is in seconds, between two kernels.
    """
    rng = np.random.default_rng(seed)
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for name, timer in timers.items():
        announce("time")
        seconds[name] = warm_up(timer, rules)
        calls[name] = calls_per_sample(seconds[name], rules)
    for _ in range(rounds):
        for name in rng.permutation(list(timers)):
            announce("time")
            time.sleep(pause)
            timers[name](_untimed(calls[name], seconds[name]))
            seconds[name] = sample(timers[name], calls[name])
            samples[name].append(seconds[name])
            # Checked in each round: on a busy machine a call can become a hundred times slower than at warm-up. Small changes
            # are ignored, since a GPU captures a graph for every count.
            fitting = calls_per_sample(seconds[name], rules)
            if not 0.8 * calls[name] <= fitting <= 1.25 * calls[name]:
                calls[name] = fitting
    return samples


def _untimed(calls: int, seconds: float) -> int:
    """Return the number of untimed calls before a sample, which has `calls` calls of `seconds` each."""
    return max(1, calls // 4, min(_WARM_CALLS, round(_WARM_SECONDS / seconds)))
