"""Baseline of policies that were trained on other operators: optima of the most similar training operators, transferred.

Certified optima of the train part stand for a table of tuned programs. An operator's neighbours are those of its class first,
then the others, by the distance of their extents; with several machines, by that of their rates as well.
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
"""Distance, in doublings of an extent, of an operator of another class: more than any two of one class are apart."""


@dataclass(frozen=True)
class Known:
    """One optimum of the table."""

    kind: str
    place: np.ndarray
    """Coordinates for distances, float64: see `_place`."""
    row: np.ndarray
    """The program, int32 [ROW]."""


@dataclass(frozen=True)
class Nearest(ModelSearch):
    """Certified optima of the most similar train operators: nearest first, one evaluation each."""

    split: str = "v1"
    """Version of the split whose train part is known."""
    machines: tuple[str, ...] = ()
    """Machines whose optima are known; the machine of the task where none is named."""
    certificates: str = ""
    """File of certificates (`gensor_gym.exact`) in addition to the shipped ones."""
    exhaustive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """ValueError for machines that are no names of machines, each of its own."""
        if isinstance(self.machines, str):
            raise ValueError(f"machines {self.machines!r}: expected names in a list, [{self.machines}]")
        for name in self.machines:
            hardware.get(name)

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure one after another, nearest first, until the budget is spent or none is left."""
        measure_first_of_each(self.rounds(session.graph, rng), session)

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """A program a round, of every neighbour whose program is legal here. ValueError without any known optimum."""
        programs = Programs(graph)
        for row in self.carried(programs):
            begin = time.perf_counter()
            latency = float(graph.latencies(row[None])[0])
            yield Construction((Schedule(row),), (latency,), 1, 1, time.perf_counter() - begin)

    def carried(self, programs: Programs) -> Iterator[np.ndarray]:
        """Legal programs int32 [ROW], all different, the nearest neighbour's first."""
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
    """Compiled coordinate descents from those programs, nearest first, then from random ones."""

    exhaustive: ClassVar[bool] = False

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """A descent a round."""
        programs = Programs(graph)
        for row in self.carried(programs):
            yield descent(programs, row)
        while True:
            yield descent(programs, graph.random_schedule(rng).row)


def carried(programs: Programs, row: np.ndarray) -> np.ndarray:
    """The vector int64 [C] whose columns are each nearest, by the logarithm of sizes, to those of another operator's program."""
    wanted = [row[column.places] for column in programs.columns]
    logs = [w * 1.0 if c.is_knob else np.log2(w) for w, c in zip(wanted, programs.columns, strict=True)]
    return np.array([nearest(known, w) for known, w in zip(programs.logs, logs, strict=True)], dtype=np.int64)


@lru_cache(maxsize=8)
def table(machines: tuple[str, ...], space: str, split: str, path: str) -> tuple[Known, ...]:
    """The optima that are known on some machines in a space, those of the train part of a split."""
    found = [c for machine in machines for c in certificates_of(machine, space)]
    if path:
        found += [c for c in read_certificates(located(path)) if c.hardware in machines and c.space == space]
    return tuple(_known(c) for c in found if operators.part_of(operators.parse(c.operator), split) == "train")


def _known(certificate: Certificate) -> Known:
    """The table entry of a certificate."""
    graph = ConstructionGraph(*certificate.key)
    return Known(graph.operator.name, _place(graph), certificate.best.row)


def _place(graph: ConstructionGraph) -> np.ndarray:
    """Logarithms of the extents by axis slot, and of the machine's rates and units, float64 [MAX_AXES + 4]."""
    ints, floats = graph.tables.ints, graph.tables.floats
    rates = [floats[PEAK], floats[DRAM_BW], floats[L2_BW], ints[UNITS]]
    return np.log2(np.concatenate([ints[EXTENT : EXTENT + MAX_AXES], rates]).astype(np.float64))
