"""Baseline for policies that are trained on other operators: reuse the optima of the most similar training operators.

Certified optima of the train part serve as a table of tuned programs. The neighbours of an operator are sorted by the distance of
their extents, and also of the machines' rates if there are several machines. Operators of the same class come first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from agents.core.programs import Programs, nearest
from agents.core.ranking import Construction, measure_first_of_each
from agents.hybrids.descents import descent
from agents.hybrids.model_search import ModelSearch
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.certificate import Certificate, read_certificates
from gensor_gym.exact.shipped import certificates_of
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import MAX_AXES
from gensor_gym.graph.tables.tables import DRAM_BW, EXTENT, L2_BW, PEAK, UNITS
from gensor_gym.locate import located
from gensor_gym.measure.session import Session

OTHER_CLASS = 64.0
"""Extra distance to an operator of another class, in doublings of an extent, which exceeds all distances within a class."""


@dataclass(frozen=True)
class Known:
    """An optimal program of a training operator; `kind` is the operator's class."""

    kind: str
    place: np.ndarray
    """Coordinates of the operator's task for distances, float64 [MAX_AXES + 4]; see `_place`."""
    row: np.ndarray
    """The optimal program, encoded as a row int32 [ROW]."""


@dataclass(frozen=True)
class Nearest(ModelSearch):
    """Baseline that transfers certified optima of the most similar training operators, nearest first.

    Each transferred program costs one model evaluation.
    """

    split: str = "v1"
    """Version of the split whose train part is used."""
    machines: tuple[str, ...] = ()
    """Machines whose optima are used; if empty, the machine of the task."""
    certificates: str = ""
    """File of certificates (`gensor_gym.exact`) that are used in addition to the shipped ones; empty for none."""
    exhaustive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.machines, str):
            raise ValueError(f"machines {self.machines!r}: expected names in a list, [{self.machines}]")
        for name in self.machines:
            hardware.get(name)

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure the transferred programs one by one, until the budget is spent or none is left."""
        measure_first_of_each(self.rounds(session.graph, rng), session)

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking of a single program for every transferred optimum that is legal.

        ValueError if no optimum is known.
        """
        programs = Programs(graph)
        for row in self.carried(programs):
            begin = time.perf_counter()
            latency = float(graph.latencies(row[None])[0])
            yield Construction((Schedule(row),), (latency,), 1, 1, time.perf_counter() - begin)

    def carried(self, programs: Programs) -> Iterator[np.ndarray]:
        """Yield the distinct legal programs int32 [ROW] that known optima become on this task, the nearest operator's first.

        ValueError if no optimum is known.
        """
        graph, seen = programs.graph, set()
        known = table(tuple(self.machines) or (graph.hardware.name,), graph.space, self.split, self.certificates)
        if not known:
            where = ", ".join(self.machines) or graph.hardware.name
            raise ValueError(f"no optimum of a train operator is known on {where} in {graph.space!r}")
        here = _place(graph)
        far = [OTHER_CLASS * (one.kind != graph.operator.name) + np.abs(one.place - here).sum() for one in known]
        for at in np.argsort(far, kind="stable"):
            row = programs.rows(carried(programs, known[at].row)[None])[0]
            if row.tobytes() not in seen and graph.fits(row[None])[0]:
                seen.add(row.tobytes())
                yield row


@dataclass(frozen=True)
class NearestDescents(Nearest):
    """Run compiled coordinate descents from the transferred optima of `Nearest`, then from random programs."""

    exhaustive: ClassVar[bool] = False

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per coordinate descent: from each transferred optimum, then from random programs without end."""
        programs = Programs(graph)
        for row in self.carried(programs):
            yield descent(programs, row)
        while True:
            yield descent(programs, graph.random_schedule(rng).row)


def carried(programs: Programs, row: np.ndarray) -> np.ndarray:
    """Transfer another operator's encoded program `row` to this task; return its vector int64 [C].

    For each axis and knob, the choice nearest to the numbers of `row` is taken, in logarithms of sizes.
    """
    wanted = [row[column.places] for column in programs.columns]
    logs = [w * 1.0 if c.is_knob else np.log2(w) for w, c in zip(wanted, programs.columns, strict=True)]
    return np.array([nearest(known, w) for known, w in zip(programs.logs, logs, strict=True)], dtype=np.int64)


@lru_cache(maxsize=8)
def table(machines: tuple[str, ...], space: str, split: str, path: str) -> tuple[Known, ...]:
    """Collect the known optima in a space on `machines`, of operators in the train part of a split.

    `path` is a file of further certificates, or "".
    """
    found = [c for machine in machines for c in certificates_of(machine, space)]
    if path:
        found += [c for c in read_certificates(located(path)) if c.hardware in machines and c.space == space]
    return tuple(_known(c) for c in found if operators.part_of(operators.parse(c.operator), split) == "train")


def _known(certificate: Certificate) -> Known:
    graph = ConstructionGraph(*certificate.key)
    return Known(graph.operator.name, _place(graph), certificate.best.row)


def _place(graph: ConstructionGraph) -> np.ndarray:
    """Return a task's coordinates for distances: log2 of its extents by axis slot and of the machine's rates and number of units.

    The array is float64 [MAX_AXES + 4].
    """
    ints, floats = graph.tables.ints, graph.tables.floats
    rates = [floats[PEAK], floats[DRAM_BW], floats[L2_BW], ints[UNITS]]
    return np.log2(np.concatenate([ints[EXTENT : EXTENT + MAX_AXES], rates]).astype(np.float64))
