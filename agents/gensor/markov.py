"""Gensor's traverser: an annealed walk whose transition probabilities are normalised benefits (arXiv 2502.11407).

Many walkers construct at once. The programs that they visit are ranked by the analytic model, and the best are measured. `Markov`
belongs to space `gensor`. `MarkovExtended` is our extension to the knobs of the extended space, and is not called Gensor. Details
that the sources leave open (benefit exponents, annealing, retention, number of measured programs) are fields of our
reconstruction (see `agents/gensor/benefits.py`; `docs/design.md` says how the values were chosen, and on which shapes).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np

from agents.core.feedback import measure_with_feedback
from agents.core.programs import Programs
from agents.core.ranking import (
    REGISTER_TILE,
    STRUCTURE,
    Constructing,
    Construction,
    best_of_each,
    best_of_structures,
    measure_rankings,
    ranked,
)
from agents.core.workers import shared_out
from agents.gensor import walk
from agents.gensor.channels_last import has_channels_last, ranked_programs
from agents.gensor.descents import descended
from agents.gensor.products import filled_products, is_weighted
from agents.gensor.stores import store_seconds, stores_pixels
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import ACTIONS
from gensor_gym.graph.rules import fits
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts as starts_of
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, ROW, TILE
from gensor_gym.graph.tables.tables import ALLOWED, IS_CPU
from gensor_gym.measure.session import Session
from gensor_gym.networks.orders.tilings import filled_by_windows, filled_registers, filling_tiles, fills_lines, has_tiles
from gensor_gym.operators.traits import shares_lanes
from gensor_gym.registry import check_known

Form = Literal["ratio", "difference"]
FORMS = get_args(Form)
_LEAST = {
    1: ("walkers", "steps", "refine_steps", "retain", "per_register_tile"),
    0: ("refiners", "descents", "columns", "traffic", "footprint", "model", "cache", "cache_growth", "conflict"),
}
"""Smallest allowed value -> names of the fields of `Markov` that have this limit."""


@dataclass(frozen=True)
class Markov(Constructing):
    """Gensor's traverser: annealed random walks in which a primitive's probability grows with its benefit.

    The fields are the details that the paper leaves open. An exponent of 0 removes a factor from the benefits.
    """

    space: str = "gensor"
    walkers: int = 64
    steps: int = 112
    """Number of steps of one walk. The paper reports convergence after about 100 iterations."""
    traffic: float = 2.0
    footprint: float = 0.25
    form: Form = "ratio"
    """Form of the benefit of changing a tile, from the traffic Q and footprint F of the tile before (T) and after (T').

    "ratio" multiplies Q(T) / Q(T') and F(T) / F(T'), each with its exponent. "difference" is Roller's (Q(T) - Q(T')) / (F(T') -
    F(T)), with differences divided by Q(T) and F(T), and with the exponent of traffic.
    """
    model: float = 2.0
    cache: float = 0.5
    cache_growth: float = 2.0
    conflict: float = 1.0
    start_temperature: float = 2.0
    final_temperature: float = 0.2
    refiners: int = 40
    """Number of walkers in a second, cooler round, which starts from the register tiles of the first round's best programs."""
    refine_steps: int = 96
    refine_temperature: float = 0.25
    descents: int = 24
    """Number of best programs from which descents by the model start, like a walk at temperature zero."""
    columns: int = 0
    """Number of best programs of different structures from which coordinate descents over whole columns start."""
    retain: int = 4
    """Number of best programs that are kept from each walk."""
    per_register_tile: int = 2
    """Number of programs of each register tile to measure first, because further ones are nearly equal.

    All other programs of the ranking follow.
    """
    backtracking: bool = True
    """Whether walks may take inverse primitives. Without them the graph is a tree, like Roller's."""

    def __post_init__(self) -> None:
        check_known("form", self.form, FORMS)
        for least, names in _LEAST.items():
            for name in names:
                if getattr(self, name) < least:
                    raise ValueError(f"{name} is {getattr(self, name)!r}; expected {least} or more")
        for name in ("start_temperature", "final_temperature", "refine_temperature"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected a number above 0")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Walk by the model and measure the visited programs in order of rank; walk again when all are measured."""
        graph = session.graph

        def first(schedules: Sequence[Schedule]) -> list[Schedule]:
            lines = (schedule for schedule in schedules if fills_lines(graph, schedule))
            return [*best_of_structures(schedules), *itertools.islice(lines, 1)]

        if has_channels_last(graph):  # lanes are channels, so there is one structure
            measure_rankings(self.construct, session, rng, 1)
            return
        several = len(_kinds(graph)) > 1
        chosen = first if several and graph.operator.frozen else best_of_structures if several else None
        measure_rankings(self.construct, session, rng, self.per_register_tile, chosen)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Walk by the model alone and rank the visited programs, with the seconds of `store_seconds`; nothing is measured."""
        begin, before, visited = time.perf_counter(), graph.evaluations, 0
        rows, seconds = ranked_programs(graph) if has_channels_last(graph) else (np.empty((0, ROW), np.int32), np.empty(0))
        if not len(rows):
            rows, seconds, visited = self._walked(graph, rng)
        schedules, latencies = ranked(rows, seconds, graph)
        return Construction(schedules, latencies, visited, graph.evaluations - before, time.perf_counter() - begin)

    def _walked(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Return programs [P, ROW] of walks and, in networks, of `filled_registers`, their seconds, and the states visited."""
        parts = [self._part(graph, kind, rng) for kind in _kinds(graph)]
        rows, seconds = (np.concatenate(found) for found in zip(*((part[0], part[1]) for part in parts), strict=True))
        # Of networks alone, so that studies on single operators compare with the traverser that they began with.
        in_network = graph.operator.frozen and (len(parts) > 1 or has_tiles(graph))
        if (stores_pixels(graph) or in_network) and len(filled := filled_registers(graph)):
            more = filled, graph.latencies(filled)
            if stores_pixels(graph):
                more = descended(graph, *more, self.descents, self.steps, self._moves(graph))
            rows, seconds = np.concatenate([rows, more[0]]), np.concatenate([seconds, more[1]])
        if shares_lanes(graph.operator):
            filled = filled_by_windows(graph)
            rows, seconds = np.concatenate([rows, filled]), np.concatenate([seconds, graph.latencies(filled)])
        if is_weighted(graph):
            filled = filled_products(graph)
            rows, seconds = np.concatenate([rows, filled]), np.concatenate([seconds, graph.latencies(filled)])
        return rows, seconds + store_seconds(rows, graph), sum(part[2] for part in parts)

    def _part(
        self, graph: ConstructionGraph, kind: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Walk from the encoded programs `kind` [S, ROW], then refine the best programs found.

        Return (programs [P, ROW], their model seconds [P], number of states visited).
        """
        starts = np.resize(kind, (self.walkers, ROW))
        rows, seconds, visited = self._walk(graph, starts, self.steps, self.start_temperature, rng)
        if self.refiners > 0:
            starts = self.register_tiles(graph, rows, seconds + store_seconds(rows, graph))
            more = self._walk(graph, starts, self.refine_steps, self.refine_temperature, rng)
            rows, seconds = np.concatenate([rows, more[0]]), np.concatenate([seconds, more[1]])
            visited += more[2]
        rows, seconds = descended(graph, rows, seconds, self.descents, self.steps, self._moves(graph))
        if self.columns > 0:
            rows, seconds = self._descend_columns(graph, rows, seconds)
        return rows, seconds, visited

    def _descend_columns(
        self, graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        programs = Programs(graph, STRUCTURE)
        ends = [programs.descend(row) for row in best_of_each(STRUCTURE, rows, seconds)[: self.columns]]
        found, reached = zip(*ends, strict=True)
        return np.concatenate([rows, found]), np.concatenate([seconds, reached])

    def register_tiles(self, graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Return the starts of the second round of walks: the register tiles of the best programs, with no outer level tiled yet.

        Knobs are kept if they are legal with the register tile alone (threads that share a reduction need a longer block tile).
        Otherwise the start has the knobs of the unscheduled program. If that is illegal too, the start is the unscheduled
        program.
        """
        best = best_of_each(REGISTER_TILE, rows, seconds)[: self.refiners].copy()
        best[:, LEVEL] = 0
        for level in range(1, MAX_LEVELS):
            best[:, TILE + level * MAX_AXES : TILE + (level + 1) * MAX_AXES] = best[:, TILE : TILE + MAX_AXES]
        first, ints = graph.initial().row, graph.tables.ints
        for row in best:
            if not fits(row, ints):
                row[KNOB:] = first[KNOB:]
            if not fits(row, ints):
                row[:] = first
        return np.resize(best, (self.refiners, ROW))

    def _walk(
        self, graph: ConstructionGraph, starts: np.ndarray, steps: int, temperature: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Walk on all threads from `starts` [W, ROW]; return the best R programs (`retain`) of each walk.

        Return (programs [<= W * R, ROW], their model seconds, number of states visited). On a small graph a walk may visit fewer
        than R programs; unfilled entries are left out.
        """
        rows = np.empty((len(starts), self.retain, ROW), dtype=np.int32)
        seconds = np.empty((len(starts), self.retain))
        seeds = rng.integers(0, 2**63, size=len(starts), dtype=np.uint64)
        tables, ints, options = graph.tables, self._moves(graph), self.options(steps, temperature)

        def part(at: slice) -> tuple[tuple[int, int], np.ndarray]:
            trace, of = walk.new_trace(), (ints, tables.floats, tables.sizes, options, graph.room())
            return walk.walks(starts[at], seeds[at], *of, rows[at], seconds[at], trace), trace

        visited = 0
        for (states, evaluations), trace in shared_out(part, len(starts)):
            graph.charge(evaluations, walk.improvements(trace))
            visited += states
        filled = np.isfinite(seconds)
        return rows[filled], seconds[filled], visited

    def _moves(self, graph: ConstructionGraph) -> np.ndarray:
        ints = graph.tables.ints
        if not self.backtracking:
            ints = ints.copy()
            for number, action in enumerate(ACTIONS):
                if action.primitive.startswith("inverse_"):
                    ints[ALLOWED + number] = 0
        return ints

    def options(self, steps: int, temperature: float) -> np.ndarray:
        """Encode the settings of a walk for the compiled code, float64 [`agents.gensor.walk.NUM_OPTIONS`]."""
        values = {
            walk.TRAFFIC: self.traffic, walk.FOOTPRINT: self.footprint, walk.MODEL: self.model,
            walk.CACHE_WEIGHT: self.cache, walk.CACHE_GROWTH: self.cache_growth, walk.CONFLICT: self.conflict,
            walk.DIFFERENCE: self.form == "difference",
            walk.START: temperature, walk.FINISH: self.final_temperature, walk.STEPS: steps,
        }  # fmt: skip
        options = np.zeros(walk.NUM_OPTIONS)
        options[list(values)] = list(values.values())
        return options


def _kinds(graph: ConstructionGraph) -> list[np.ndarray]:
    """Group the encoded programs [S, ROW] at which walks begin: one group on a GPU, one group per program on a CPU.

    The model's error depends on the kind of program. In one group on a CPU, the best programs would all be of one kind.
    """
    first = starts_of(graph.tables, graph.initial().row)
    return list(first[:, None]) if graph.tables.ints[IS_CPU] else [first]


@dataclass(frozen=True)
class MarkovExtended(Markov):
    """The traverser in the extended space, with moves that change knobs.

    A knob's benefit is the ratio of the model's latencies.
    """

    space: str = "extended"
    walkers: int = 72
    steps: int = 192
    traffic: float = 0.5
    model: float = 4.0
    cache_growth: float = 1.0
    conflict: float = 0.5
    start_temperature: float = 4.0
    refiners: int = 56
    refine_steps: int = 128
    refine_temperature: float = 0.5
    descents: int = 16
    columns: int = 8
    near: float = 1.3
    """Register tiles with few measurements come first among programs predicted within this multiple of the best time."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Walk, then measure programs by their predicted times, which the measurements correct (`agents.core.feedback`)."""

        def predict(rows: np.ndarray) -> np.ndarray:
            return session.graph.latencies(rows) + store_seconds(rows, session.graph)

        own, first = predict if stores_pixels(session.graph) else None, partial(filling_tiles, session.graph)
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near, predict=own, first=first)
