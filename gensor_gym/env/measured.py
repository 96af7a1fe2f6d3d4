"""Final reward R of a finished program, and entries of `info` about it, by the model or by measurement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.reward import final_reward
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.gir.graph import GirGraph
from gensor_gym.graph.compiling.early import at_once
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, Replay, get_backend, registered_name, together
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.networks.planning.graph import PlanGraph

Graph = ConstructionGraph | GirGraph | PlanGraph
PATIENCE = 20.0
"""Multiple of the roofline floor from which on a program is timed by a single call. Random play on gemm(m=256, n=384, k=512)
mostly ends in such programs, which otherwise would be called twelve times each (AMD EPYC, Zen 4, one thread)."""
ILLEGAL = {"runtime_s": math.inf, "status": Status.ILLEGAL.value}
"""Entries of `info` for an illegal program, which has no time by the model and which no backend measures."""


def optimum_of(graph: Graph) -> float | None:
    """Return the proved shortest time of a task's programs by the model, in seconds; None if unknown.

    It comes from a certificate, from the table of a fused operator's space, or from all plans of a network.
    """
    if isinstance(graph, GirGraph | PlanGraph):
        return graph.least
    certificate = certificate_of(graph)
    return None if certificate is None else certificate.optimum


class FinalReward:
    """Computes the final reward R of programs, and the entries of `info` about them, at the end of episodes.

    With `timing="pooled"` each program is timed once, and the time is reused; with `"fresh"` it is timed at every request.
    """

    def __init__(self, backend: str | Backend, hardware: Hardware, timing: str) -> None:
        """Look up the backend by its name. ValueError for an unknown name lists the known backends."""
        self.backend = None if backend == "analytic" else get_backend(backend, hardware)
        self.name = "analytic" if self.backend is None else self.backend.name
        self.hardware = hardware
        self.pooled = timing == "pooled"
        self.last: Measurement | None = None
        """Of the program that was measured last, or looked up."""
        self._seen: dict[tuple[str, str], Measurement] = {}
        self._certified: dict[int, tuple[Graph, float | None]] = {}
        """`id(graph)` -> (graph, its proved optimum). The graph stays alive, so that no other graph gets its id."""

    def of(
        self, graphs: list[Graph], rows: list[np.ndarray], latencies: list[float]
    ) -> list[tuple[float, dict[str, Any]]]:
        """Return, for each finished program, (reward to add, entries of `info`).

        The reward to add is R if the backend measures, and 0 if the backend is the model, because then the step that ended the
        episode has paid R. `latencies` are the programs' seconds by the model, infinite for an illegal program.
        """
        if self.backend is None:
            return [(0.0, self._modelled(graph, seconds)) for graph, seconds in zip(graphs, latencies, strict=True)]
        legal = [place for place, seconds in enumerate(latencies) if seconds < math.inf]
        measured = self._measure(self.backend, [graphs[i] for i in legal], [graphs[i].schedule(rows[i]) for i in legal])
        found: list[tuple[float, dict[str, Any]]] = [(0.0, ILLEGAL)] * len(graphs)
        for place, measurement in zip(legal, measured, strict=True):
            graph = graphs[place]
            known = self.regret(graph, rows[place], latencies[place])
            found[place] = reward(graph, measurement), facts(measurement, known)
            self.last = measurement
        return found

    def regret(self, graph: Graph, row: np.ndarray, modelled: float) -> float | None:
        """Return log(time / best time) of a legal program, or None if the best time is unknown.

        A recorded backend compares recorded times, if its table is complete; the model compares predicted times, if a certificate
        has the optimum. `modelled` is the program's time by the model in seconds.
        """
        if self.backend is not None:
            return self.backend.regret(graph, graph.schedule(row)) if isinstance(self.backend, Replay) else None
        optimum = self._optimum(graph)
        return None if optimum is None else math.log(modelled / optimum)

    def _optimum(self, graph: Graph) -> float | None:
        if id(graph) not in self._certified:
            with at_once():
                self._certified[id(graph)] = graph, optimum_of(graph)
        return self._certified[id(graph)][1]

    def _modelled(self, graph: Graph, seconds: float) -> dict[str, Any]:
        """Return the entries of `info` for a program whose time by the model is `seconds`.

        `regret` is present if the task's optimum is known.
        """
        if seconds == math.inf:
            return ILLEGAL
        optimum = self._optimum(graph)
        known = {} if optimum is None else {"regret": math.log(seconds / optimum)}
        return {"runtime_s": seconds, "status": "OK", **known}

    def restart(self) -> None:
        """Restart the random noise of a recorded backend. If the backend has a seed, the noise repeats."""
        if isinstance(self.backend, Replay):
            self.backend.restart()

    def _measure(self, backend: Backend, graphs: list[Graph], schedules: list[Any]) -> list[Measurement]:
        """Measure new programs; look up the others. Schedules whose kernels have equal digests count as one program.

        The backend gets all new programs at once, so that it can compile some programs while it times others.
        """
        asked = [(graph.operator, schedule) for graph, schedule in zip(graphs, schedules, strict=True)]
        keys = [(str(op), backend.digest(op, schedule, self.hardware)) for op, schedule in asked]
        fresh = [*range(len(keys))]
        if self.pooled:  # measure the first of equal programs
            fresh = sorted({key: place for place, key in reversed([*enumerate(keys)]) if key not in self._seen}.values())
        measured = together(backend, [asked[place] for place in fresh], self.hardware, PATIENCE)
        found = dict(zip(fresh, measured, strict=True))
        self._seen.update({keys[place]: measurement for place, measurement in found.items()})
        return [found.get(place, self._seen[key]) for place, key in enumerate(keys)]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copy.

        A registered backend becomes its name, because its workers belong to the running process.
        """
        name = None if self.backend is None else registered_name(self.backend)
        return self.__dict__ | {"_certified": {}} | ({"backend": name} if name is not None else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of `__getstate__`. A backend's name becomes the backend."""
        backend = state["backend"]
        self.__dict__.update(state, backend=get_backend(backend, state["hardware"]) if isinstance(backend, str) else backend)

    def close(self) -> None:
        """Stop the worker processes of the backend."""
        if self.backend is not None:
            self.backend.close()


def reward(graph: Graph, measurement: Measurement) -> float:
    """Return the final reward R of a measured program; 0 if its status is not OK."""
    if measurement.status is not Status.OK or not math.isfinite(measurement.seconds):
        return 0.0
    with at_once():
        return float(final_reward(graph.floor, measurement.seconds))


def facts(measurement: Measurement, regret: float | None = None) -> dict[str, Any]:
    """Return the entries of `info` for a measured program: `runtime_s`, `status`, `samples` (number of timings), `regret`.

    `regret` is left out if it is None.
    """
    known = {} if regret is None else {"regret": regret}
    samples = len(measurement.samples)
    return {"runtime_s": measurement.seconds, "status": measurement.status.value, "samples": samples, **known}
