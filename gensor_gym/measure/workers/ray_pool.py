"""Measurement on a cluster: a pool whose workers are Ray actors with one device each.

`ray start` starts the cluster. Every node has this package installed. All devices are of one kind, because timings of different
machines must not be mixed. An actor compiles, verifies and times with its own worker process, exactly as on one machine, so a
kernel's crash costs its trial and no actor. If an actor is lost, its trial is repeated on another actor.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.devices.opened import opened_by
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.runners import runner_named
from gensor_gym.measure.workers.pool import AHEAD
from gensor_gym.measure.workers.requests import Comparison, Trial
from gensor_gym.plugins import load_plugins, loaded

RETRIES = 3
"""Number of Ray actors that a trial may lose before it counts as CRASHED."""
START_SECONDS = 120.0
"""Seconds that an actor may take to start. If it takes longer, the cluster is assumed to be full."""


class Station:
    """A Ray actor: it compiles, verifies and times kernels on one device of a cluster's node."""

    def __init__(self, device: str, plugins: Iterable[str] = ()) -> None:
        """Load the plugins that the calling run has loaded, and start the backend with the name `device`."""
        load_plugins(*plugins)
        self._backend = runner_named(device).start()

    def device(self, hw: Hardware) -> str:
        """Return the name of this node's device."""
        return self._backend.device(hw)

    def pid(self) -> int:
        """Return the id of the actor's process."""
        return os.getpid()

    def trial(self, trial: Trial) -> Measurement:
        """Measure one trial."""
        (measurement,) = self._backend.pool.stream([trial])
        return measurement

    def compare(self, comparison: Comparison) -> dict[str, list[float]]:
        """Run one comparison."""
        return self._backend.pool.compare(comparison)


class RayPool:
    """A pool of workers on a Ray cluster, one `Station` (a Ray actor) for each device; see `pool.Pool`."""

    def __init__(self, device: str, workers: int | None = None, ahead: int = AHEAD) -> None:
        """Join the cluster. `workers` is the number of stations (Ray actors).

        By default it is the number of nodes, or of GPUs for a GPU backend. `device` is the name of the backend. Stations start at
        the first trial. ValueError for another device, or without a cluster.
        """
        opened = opened_by(device)
        connect()
        if workers is None:
            workers = int(ray.cluster_resources().get("GPU", 0)) // opened.gpus if opened.gpus else len(ray.nodes())
        if workers < 1:
            raise ValueError(f"{workers} workers: the cluster needs a node with a device, and a pool one worker or more")
        self._device, self._count, self._ahead = device, workers, ahead
        self._stations: list[Any] = []
        self.retries = 0
        """Number of trials that were repeated because their station was lost."""

    def device(self, hw: Hardware) -> str:
        """Return the common name of all stations' devices. ValueError if they differ."""
        names = set(ray.get([station.device.remote(hw) for station in self._running()]))
        if len(names) != 1:
            raise ValueError(f"a pool takes devices of one kind, the cluster has {', '.join(sorted(names))}")
        return names.pop()

    def pids(self) -> list[int]:
        """Return the process ids of the stations."""
        return ray.get([station.pid.remote() for station in self._running()])

    def stream(self, trials: Iterable[Trial], overlap: bool = False) -> Iterator[Measurement]:
        """Yield one measurement per trial, in order; see `Pool`. A station (a Ray actor) gets a new trial after each result."""
        left, again = enumerate(trials), deque[tuple[int, Trial, int]]()
        flying: dict[Any, tuple[tuple[int, Trial, int], Any]] = {}
        done: dict[int, Measurement] = {}
        idle, position = list(self._running()), 0
        while True:
            while idle and (job := self._next(left, again, position, done, flying)) is not None:
                station = idle.pop()
                flying[station.trial.remote(job[1])] = (job, station)
            if not flying:
                return
            (reference,), _ = ray.wait(list(flying), num_returns=1)
            job, station = flying.pop(reference)
            try:
                done[job[0]] = ray.get(reference)
                idle.append(station)
            except RayActorError as error:
                idle += self._replaced(station)
                self._lost(job, error, again, done)
            while position in done:
                yield done.pop(position)
                position += 1

    def compare(self, comparison: Comparison) -> dict[str, list[float]]:
        """Run a comparison on one station, and again on another if the first is lost; see `Pool`."""
        for attempt in range(RETRIES + 1):
            station = self._running()[0]
            try:
                return ray.get(station.compare.remote(comparison))
            except RayActorError:
                self._replaced(station)
                if attempt == RETRIES:
                    raise
                self.retries += 1
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        """End the stations. The cluster keeps running."""
        for station in self._stations:
            ray.kill(station)
        self._stations = []

    def _next(
        self, left: Iterator[tuple[int, Trial]], again: deque, position: int, done: dict, flying: dict
    ) -> tuple[int, Trial, int] | None:
        """Return the next job as (index of the trial, trial, number of stations lost with it), or None if no job may start now.

        A trial whose station was lost comes first, then a new one if fewer than `ahead` are running or wait for earlier results.
        """
        if again:
            return again.popleft()
        if len(done) + len(flying) >= self._ahead:
            return None
        found = next(left, None)
        return None if found is None else (*found, 0)

    def _lost(self, job: tuple[int, Trial, int], error: RayActorError, again: deque, done: dict[int, Measurement]) -> None:
        index, trial, tries = job
        if tries < RETRIES:
            self.retries += 1
            again.append((index, trial, tries + 1))
        else:
            text = f"{tries + 1} stations were lost with this kernel: {error}"
            done[index] = Measurement(Status.CRASHED, error=text, digest=trial.kernel.digest)

    def _running(self) -> list[Any]:
        """Return the stations (Ray actors), which the first call starts. RuntimeError if none starts."""
        if not self._stations:
            started = [self._start() for _ in range(self._count)]
            self._stations = [station for station in started if _is_up(station)]
        if not self._stations:
            raise RuntimeError(f"no station came up in {START_SECONDS:g} s: the cluster has no free {self._device}")
        return self._stations

    def _start(self) -> Any:
        options = {"num_cpus": 1, "num_gpus": opened_by(self._device).gpus, "scheduling_strategy": "SPREAD"}
        return ray.remote(Station).options(max_restarts=0, **options).remote(self._device, list(loaded()))

    def _replaced(self, station: Any) -> list[Any]:
        """Remove a lost station and start another. Return a list with the new one, or an empty list if it does not start.

        RuntimeError if it does not start and no other station is left.
        """
        self._stations.remove(station)
        if _is_up(fresh := self._start()):
            self._stations.append(fresh)
            return [fresh]
        if not self._stations:
            raise RuntimeError("the last station of the Ray pool was lost and no other came up")
        return []


def connect() -> None:
    """Join the cluster that RAY_ADDRESS names, or this machine's cluster. ValueError if there is none."""
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        ray.init(address=address, log_to_driver=False)
    except ConnectionError as error:
        raise ValueError(
            f"measure.pool=ray finds no Ray cluster at {address!r}: start one with `ray start --head`, and "
            f"`ray start --address=HEAD:6379` on the other machines ({error})"
        ) from error


def _is_up(station: Any) -> bool:
    """Return whether a station (a Ray actor) answers within `START_SECONDS`. Kill it if it does not."""
    try:
        ray.get(station.pid.remote(), timeout=START_SECONDS)
    except (GetTimeoutError, RayActorError):
        ray.kill(station)
        return False
    return True
