"""The interface of backends (sources of measurements), their registry, and the choice of a backend."""

from __future__ import annotations

import atexit
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from gensor_gym.codegen.build import check_kind
from gensor_gym.codegen.targets import target_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.runners import INSTEAD, RUNNERS, runner_of
from gensor_gym.operators.types import Operator
from gensor_gym.plugins import load_named
from gensor_gym.registry import Made, near, register, registers


class Backend(Protocol):
    """A source of measurements. A schedule that fails raises no error: the failure is the measurement's status."""

    name: str
    stored: bool
    """Whether results are timings of a machine, which belong in a store."""

    def device(self, hw: Hardware) -> str:
        """Return the name of the device that the times belong to, which is part of the key in the store."""

    def digest(self, op: Any, schedule: Any, hw: Hardware) -> str:
        """Return the digest that identifies the program. Schedules with equal digests are one trial."""

    def measure(self, op: Any, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Measure schedules. Return one measurement for each, in order."""

    def stream(self, op: Any, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Yield the results of `measure`, each when it is ready: a search that is killed keeps the finished results."""

    def close(self) -> None:
        """End the worker processes. The next use of the backend restarts them."""


@runtime_checkable
class Replay(Protocol):
    """Interface of a backend that answers from earlier timings, by two more methods."""

    def regret(self, graph: Any, schedule: Any) -> float | None:
        """Return the logarithm of a schedule's time divided by the best program's time.

        0 if the two are statistically tied, None if the best is unknown.
        """

    def restart(self) -> None:
        """Forget which programs were requested, so that the same requests get the same answers again."""


@runtime_checkable
class Together(Protocol):
    """Interface of a backend that can measure schedules of several operators at once, by one more method."""

    def together(
        self, asked: Sequence[tuple[Any, Any]], hw: Hardware, patience: float = math.inf
    ) -> Iterator[Measurement]:
        """Yield one measurement for each (operator, schedule) of `asked`, in order, each when it is ready.

        A program is too slow if its first call and a second one both take at least `patience` times the roofline floor, and at
        least as long as a sample. It is not sampled: the shorter call is its time, and its conditions have `cut_short`.
        """


def together(
    backend: Backend, asked: Sequence[tuple[Any, Any]], hw: Hardware, patience: float = math.inf
) -> list[Measurement]:
    """Measure schedules of several operators. Return one measurement for each (operator, schedule) of `asked`, in order.

    A backend that implements `Together` measures all at once, and does not sample programs that `patience` rules out as too slow.
    Other backends measure one operator at a time.
    """
    if isinstance(backend, Together):
        return list(backend.together(asked, hw, patience))
    places: dict[Any, list[int]] = {}
    for place, (op, _) in enumerate(asked):
        places.setdefault(op, []).append(place)
    found: dict[int, Measurement] = {}
    for op, own in places.items():
        found.update(zip(own, backend.measure(op, [asked[place][1] for place in own], hw), strict=True))
    return [found[place] for place in range(len(asked))]


def _analytic() -> Backend:
    from gensor_gym.measure.analytic import AnalyticBackend

    return AnalyticBackend()


def _model(name: str, seconds: Callable[[Any, Any], float]) -> Backend:
    from gensor_gym.measure.analytic import ModelBackend

    return ModelBackend(name, seconds)


def _emulated() -> Backend:
    from gensor_gym.measure.emulator.backend import EmulatedBackend

    return EmulatedBackend()


def _measured() -> Backend:
    from gensor_gym.measure.records.measured_backend import MeasuredBackend

    return MeasuredBackend()


BACKENDS: dict[str, Callable[[], Backend]] = {
    "analytic": _analytic,
    **{runner.name: runner.start for runner in RUNNERS.values()},
    "emulated": _emulated, "measured": _measured,
}  # fmt: skip
"""Name of a backend -> function that makes it. `recorded` is missing, because it needs a table."""


def register_backend(name: str) -> Callable[[Made], Made]:
    """Return a decorator for a class or function that makes a Backend without arguments. ValueError for a taken name."""
    return registers("backend", BACKENDS, name)


def register_model(name: str) -> Callable[[Made], Made]:
    """Return a decorator that registers a model, a function of (graph, schedule) that returns seconds, as a backend.

    No kernel runs. ValueError for a taken name.
    """

    def add(seconds: Made) -> Made:
        register("backend", BACKENDS, name, partial(_model, name, seconds), seconds.__module__)
        return seconds

    return add


_live: dict[tuple[str, int], Backend] = {}


def get_backend(backend: str | Backend, hw: Hardware) -> Backend:
    """Return the backend of this name for the hardware, made once per process. A Backend object is returned unchanged.

    `auto` follows the hardware's kind: `cpu` for a CPU, `cuda` for a GPU that is present. The name `cuda` accepts any CUDA
    device. `measured` has the times of Measured v1. `recorded` uses the shipped tables of the hardware;
    `records.backend.open_recorded` opens other tables or resamples. `recorded` is made again at each call, because it counts the
    requests for each program.

    Raises:
        ValueError: for an unknown name, a backend of the other kind of hardware, or `auto` or `cuda` without the device.
    """
    if not isinstance(backend, str):
        if not callable(getattr(backend, "measure", None)):
            raise ValueError(f"no backend {backend!r}; accepted: a Backend, {_names()}")
        return backend
    if re.match(r"recorded(?![^:?])", backend):
        from gensor_gym.measure.records.backend import open_recorded

        return open_recorded(backend, hw)
    name = _auto(hw) if backend == "auto" else backend
    if name not in BACKENDS:
        load_named()
    if name not in BACKENDS:
        raise ValueError(f"no backend {backend!r}; accepted: {_names()}{near(backend, ('auto', 'recorded', *BACKENDS))}")
    _check(name, hw)
    key = (name, os.getpid())
    if key not in _live:
        _live[key] = BACKENDS[name]()
    return _live[key]


def ray_backend(backend: str, hw: Hardware, workers: int | None = None) -> Backend:
    """Make a backend whose workers run on a Ray cluster: `cpu`, `cuda`, or `auto` for the one that fits the hardware.

    `workers` is their number, as in `ray_pool.RayPool`. ValueError for another backend, or without Ray or a cluster.
    """
    runner = runner_of(hw)
    if backend not in ("auto", runner.name):
        raise ValueError(f"backend {backend!r} over Ray: expected auto or {runner.name} for {hw.name}")
    try:
        from gensor_gym.measure.workers.ray_pool import RayPool
    except ModuleNotFoundError as error:
        raise ValueError(f"measure.pool=ray needs Ray: pip install 'gensor_gym[ray]' ({error})") from error
    pool = RayPool(runner.name, workers)
    made = runner.backend(pool)
    made.device = pool.device
    return made


def _names() -> str:
    return f"auto, {', '.join(BACKENDS)}, recorded[:FILE]"


def registered_name(backend: Backend) -> str | None:
    """Return the name for which `get_backend` returns this object in this process; None if there is none."""
    return next((name for (name, owner), live in _live.items() if live is backend and owner == os.getpid()), None)


def _auto(hw: Hardware) -> str:
    """Return the name of the backend that times kernels for the hardware. ValueError if this machine cannot run them."""
    runner = runner_of(hw)
    if reason := runner.absence(hw):
        raise ValueError(f"{hw.name} cannot be timed here: {reason}; {INSTEAD}")
    return runner.name


def _check(name: str, hw: Hardware) -> None:
    """Raise ValueError if the backend's kernels are in another language than the hardware's, such as C instead of CUDA."""
    if name == "emulated":
        wrong = not target_of(hw).emulated
    else:
        wrong = any(runner.name == name and language != target_of(hw).name for language, runner in RUNNERS.items())
    if wrong:
        raise ValueError(f"backend {name!r} cannot run {hw.name}, which is a {hw.kind} whose kernels are in {target_of(hw).name}")


def measure(
    op: Operator | Dataflow | str, schedule: Schedule | GirSchedule, hw: Hardware | str = "host", backend: str | Backend = "auto"
) -> Measurement:
    """Verify and time one schedule in a worker process. Some backends evaluate a model or read a table instead."""
    from gensor_gym import hardware

    computation = resolve_computation(op)
    hw = hardware.get(hw)
    check_kind(computation, schedule, hw)
    return get_backend(backend, hw).measure(computation, [schedule], hw)[0]


@atexit.register
def close_backends() -> None:
    """End the workers of every backend that `get_backend` made in this process."""
    for (_, owner), backend in list(_live.items()):
        if owner == os.getpid():
            backend.close()
