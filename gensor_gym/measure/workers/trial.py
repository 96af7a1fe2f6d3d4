"""One trial of a kernel in a worker, for every kind of device: load, verify, time, verify again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Literal, Protocol

import numpy as np

from gensor_gym.measure.answers.draw import DRAWS, Expected
from gensor_gym.measure.answers.expectation import ExpectationCache
from gensor_gym.measure.devices.anchor import Anchor
from gensor_gym.measure.devices.energy import metered
from gensor_gym.measure.devices.machine_lock import timing_lock
from gensor_gym.measure.isolation.launch import ISOLATED_BY
from gensor_gym.measure.measurement import UNTIMED, Measurement, Status
from gensor_gym.measure.stats import unseen
from gensor_gym.measure.stats.apart import protocol_of
from gensor_gym.measure.stats.timing import ClockFault, elapsed, take_samples
from gensor_gym.measure.workers.requests import Built, TrialRequest
from gensor_gym.operators.computation import Computation

REPEATS = 3
"""Number of calls that are checked one by one after timing, to catch kernels that fail in every second or third call."""

Announce = Callable[[str], None]
"""Function that tells the parent process which stage of a request begins, so that it knows where a worker crashed or hung."""


BaselineKind = Literal["torch", "torch.nhwc", "torch.b_transposed", "torch.compile", "torch.prepacked"]
"""Kinds of baselines, which are also names in the results of a comparison: torch's own kernel, torch on NHWC images, torch with
the second matrix transposed in memory, torch.compile's kernel, and oneDNN's kernel on prepacked weights."""


class LaunchError(Exception):
    """The device refused to run the kernel. The worker can continue."""


class DeviceLost(Exception):
    """The device is unusable for this process from now on (a sticky CUDA error), so the worker must end."""


class Loaded(Protocol):
    """Interface of a kernel that is loaded in the worker, with its buffers."""

    def write(self, draw: Expected) -> None:
        """Copy the inputs of `draw` into the buffers, and fill output and workspace with NaN bytes."""

    def copy_weights(self, nbytes: int) -> None:
        """Copy constant weights until all copies have `nbytes`. Calls read them in turn, until the next `write`.

        With 0 bytes, calls read one copy.
        """

    def poison(self) -> None:
        """Fill the output with NaN bytes."""

    def time(self, calls: int) -> float:
        """Call the kernel `calls` times in a row; return the total seconds."""

    def fault(self, draw: Expected) -> str:
        """Compare the output with that expected for the inputs of `draw`.

        Return a message about wrong elements; empty if it is right.
        """

    def damage(self, draw: Expected) -> str:
        """Return a message about guard words or inputs that the kernel has overwritten; empty if there are none."""

    def conditions(self) -> dict[str, object]:
        """Return conditions of a measurement: the device and its current state."""

    def close(self) -> None:
        """Unload the kernel."""


class Baseline(Protocol):
    """Interface of a library's kernel for an operator, loaded on the device with its inputs."""

    def fault(self, draw: Expected) -> str:
        """Compare one call's result with that expected by `draw`. Return a message about a wrong output; empty if it is right."""

    def time(self, calls: int) -> float:
        """Call the kernel `calls` times in a row; return the total seconds."""


class Device(Protocol):
    """Interface of a worker's device, on which kernels run."""

    anchor: Anchor | None
    """The drift anchor; None if the conditions contain the device's clock instead."""
    lock: str
    """Suffix of the timing lock's name, unique among the machine's devices."""
    exclusive: bool
    """Whether a whole trial holds the timing lock, and not only its timing.

    A GPU is exclusive, because a worker that verifies slows down another worker's timing.
    """

    draws_limit: int
    """Largest number of bytes of random inputs and expected outputs that a worker caches."""

    def draws(self, op: Computation, seed: int, places: Sequence[int] = DRAWS) -> tuple[Expected, ...]:
        """Draw random inputs of an operator and compute the expected outputs. `places` selects some of the three draws.

        The arrays are where this device compares outputs, in host or device memory.
        """

    def kinds(self, op: Computation) -> tuple[BaselineKind, ...]:
        """Return the torch baselines that this device can time for an operator, one per memory layout."""

    def load(self, built: Built, threads: int) -> Loaded:
        """Load a compiled kernel; LaunchError if the device refuses it."""

    def baseline(self, op: Computation, draw: Expected, threads: int, kind: BaselineKind) -> Baseline:
        """Return torch's kernel on this device with a draw's inputs. ValueError for a kind that the device does not have."""

    def meters(self) -> dict[str, float]:
        """Return what the device has used since a fixed time in the past, by names of `energy.METERS`: those it can read."""

    def steady(self) -> AbstractContextManager[None]:
        """Return the context in which kernels are timed; on a CPU it keeps the calling thread on one core."""


def check(loaded: Loaded, draw: Expected) -> str:
    """Check buffers and output after a call. Return a message about damage or a wrong output; empty if all is right.

    `draw` has the inputs and the expected output.
    """
    return loaded.damage(draw) or loaded.fault(draw)


@contextmanager
def opened(device: Device, built: Built, threads: int) -> Iterator[Loaded]:
    """Return a context that loads a compiled kernel and always unloads it."""
    loaded = device.load(built, threads)
    try:
        yield loaded
    finally:
        loaded.close()


def run_trial(device: Device, cache: ExpectationCache, request: TrialRequest, announce: Announce) -> Measurement:
    """Verify and time one kernel. Every fault of the kernel becomes a status."""
    kernel = request.built.kernel
    announce("reference")
    draws = cache.get(kernel.operator, request.seed) if request.timed else (cache.hard(kernel.operator, request.seed),)
    try:
        with alone(device, device.exclusive, announce):
            announce("load")
            with opened(device, request.built, request.threads) as loaded:
                if not request.timed:
                    return _checked(loaded, draws[0], request, announce)
                return _measure(device, loaded, draws, request, announce)
    except LaunchError as error:
        return Measurement(Status.LAUNCH_ERROR, error=str(error), digest=kernel.digest)
    except ClockFault as error:
        return Measurement(Status.IMPLAUSIBLE, error=str(error), digest=kernel.digest)


def alone(device: Device, wanted: bool, announce: Announce) -> AbstractContextManager[None]:
    """Return a context that waits for a device's timing lock and holds it, or does nothing unless `wanted`."""
    if not wanted:
        return nullcontext()
    announce("wait")
    return timing_lock(device.lock)


def _measure(
    device: Device, loaded: Loaded, draws: tuple[Expected, ...], request: TrialRequest, announce: Announce
) -> Measurement:
    kernel = request.built.kernel

    def wrong(fault: str, when: str) -> Measurement:
        return Measurement(Status.WRONG_ANSWER, error=f"{when}: {fault}", digest=kernel.digest)

    before = (draws[1], draws[0])  # the draw that is timed comes last, so its inputs are in the buffers
    for draw in before:
        announce("verify")
        loaded.write(draw)
        seconds = elapsed(loaded.time, 1)
        if fault := check(loaded, draw):
            return wrong(fault, "before timing")
        if seconds >= request.slow and (shorter := _again(device, loaded, seconds, announce)) >= request.slow:
            fault = check(loaded, draw)
            return wrong(fault, "after timing") if fault else _cut_short(loaded, request, shorter)
    with alone(device, not device.exclusive, announce), device.steady():
        announce("time")
        if device.anchor is not None:
            device.anchor.refresh(request.rules)
        loaded.copy_weights(request.apart)
        loaded.poison()
        (samples, calls), used = metered(device.meters, partial(take_samples, loaded.time, request.rules, called=len(before)))
        drift = device.anchor.conditions() if device.anchor else {}
        conditions = _conditions(loaded, request, calls, request.apart) | used | drift
    announce("check")
    if fault := check(loaded, draws[0]):
        return wrong(fault, "after timing")
    if fault := _repeated(loaded, draws[2]):
        return wrong(fault, "on new inputs after timing")
    if request.unseen and (kept := _on_unseen(device, loaded, request, announce)):
        return kept
    if (seconds := float(np.median(samples))) < request.floor:
        text = f"median {seconds:.3g} s is below {request.floor:.3g} s, the roofline floor with its margin"
        return Measurement(Status.IMPLAUSIBLE, tuple(samples), conditions, text, kernel.digest)
    return Measurement(Status.OK, tuple(samples), conditions, "", kernel.digest)


def _repeated(loaded: Loaded, draw: Expected) -> str:
    """Call the kernel `REPEATS` times on the inputs of a draw. Return a message about the first wrong call; empty if none."""
    loaded.write(draw)
    for _ in range(REPEATS):
        loaded.poison()
        loaded.time(1)
        if fault := check(loaded, draw):
            return fault
    return ""


def _on_unseen(device: Device, loaded: Loaded, request: TrialRequest, announce: Announce) -> Measurement | None:
    """Call the kernel twice on each of some draws that it has not seen. Return a measurement if an answer is wrong, or kept.

    More draws follow as long as second calls are too fast, because other work on the machine can delay every first call.
    """
    kernel, fault = request.built.kernel, ""
    first: list[float] = []
    second: list[float] = []
    for number in range(1, unseen.ROUNDS + 1):
        announce("reference")
        draws = device.draws(kernel.operator, request.seed + number)
        with alone(device, not device.exclusive, announce), device.steady():
            for draw in draws:
                announce("check")
                loaded.write(draw)
                for times in (first, second):
                    times.append(elapsed(loaded.time, 1))
                    if fault := check(loaded, draw):
                        return Measurement(Status.WRONG_ANSWER, error=f"on unseen inputs: {fault}", digest=kernel.digest)
        if not (fault := unseen.fault_of_calls(first, second)):
            return None
    return Measurement(Status.IMPLAUSIBLE, error=fault, digest=kernel.digest)


def _checked(loaded: Loaded, draw: Expected, request: TrialRequest, announce: Announce) -> Measurement:
    """Verify a loaded kernel by two calls on the inputs of one draw, without timing it. Other programs may run meanwhile.

    Return a measurement with the shorter call as its one sample (condition `UNTIMED`), or status WRONG_ANSWER.
    """
    announce("verify")
    loaded.write(draw)
    seconds = []
    for _ in range(2):
        loaded.poison()
        seconds.append(elapsed(loaded.time, 1))
        if fault := check(loaded, draw):
            return Measurement(Status.WRONG_ANSWER, error=fault, digest=request.built.kernel.digest)
    conditions = _conditions(loaded, request, calls=1) | {UNTIMED: True}
    return Measurement(Status.OK, (max(min(seconds), 1e-9),), conditions, "", request.built.kernel.digest)


def _cut_short(loaded: Loaded, request: TrialRequest, seconds: float) -> Measurement:
    """Return the measurement of a correct kernel that is too slow to be sampled. Its one sample is `seconds`."""
    conditions = _conditions(loaded, request, calls=1) | {"cut_short": True}
    return Measurement(Status.OK, (seconds,), conditions, "", request.built.kernel.digest)


def _again(device: Device, loaded: Loaded, seconds: float, announce: Announce) -> float:
    """Call the kernel once more, under the timing lock with warm caches. Return the smaller of `seconds` and that call's time."""
    with alone(device, not device.exclusive, announce), device.steady():
        announce("time")
        loaded.poison()
        return min(seconds, elapsed(loaded.time, 1))


def _conditions(loaded: Loaded, request: TrialRequest, calls: int, apart: int = 0) -> dict[str, object]:
    return {
        **loaded.conditions(),
        "threads": request.threads,
        "protocol": protocol_of(request.built.kernel.operator),
        "cache": "warm but for weights" if apart else "warm",
        **({"prepacked": True} if request.built.kernel.prepacked else {}),
        "calls_per_sample": calls,
        "compiler": request.built.compiler,
        "compile_seconds": request.built.compile_seconds,
        "load_average": os.getloadavg()[0],
        "isolation": os.environ.get(ISOLATED_BY) or "none",
    }
