"""The construction graph of one task (an operator on a hardware): its rules and its analytic model behind one interface."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.cost import model
from gensor_gym.cost.calibration import coefficients_of
from gensor_gym.cost.constants import constant_values
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.cost.terms import NUM_TERMS, TERMS
from gensor_gym.dataflow.joins import check_pitches
from gensor_gym.graph import rules
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS, STOP
from gensor_gym.graph.compiled import compiled, plain
from gensor_gym.graph.compiling.plain import interpreted
from gensor_gym.graph.coordinates import Coordinates, columns_of, opened
from gensor_gym.graph.defaults import initial_row
from gensor_gym.graph.enumeration import enumerate_rows
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.knob import EVERY
from gensor_gym.graph.rules import fill_mask, transition, within
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.filling import make_tables
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_LEVELS, ROW
from gensor_gym.graph.tables.tables import HORIZON
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.rows.graph import RowGraph

_WEIGHTS = np.array([1.0 if a.primitive.startswith("inverse") else 0.5 if a.primitive == "cache" else 2.0 for a in ACTIONS])
"""Relative frequency of each action in a random walk, float64 [N]."""


class ConstructionGraph(RowGraph[Schedule]):
    """Graph of the schedules of an operator for a hardware. Nodes are schedules, edges are the primitives (actions) of `space`.

    Methods take and return single schedules as `Schedule`, batches as int32 arrays [B, ROW]. `calibrated=False` uses the analytic
    model without its fitted coefficients.
    """

    actions, kind = ACTIONS, Schedule

    def __init__(
        self,
        operator: Operator | str,
        hardware: Hardware | str = "host",
        space: str = "gensor",
        calibrated: bool = True,
    ) -> None:
        """Build the task's tables. ValueError names an invalid operator, hardware or space."""
        self.operator = operators.resolve_one(operator)
        if self.operator.winograd:
            raise ValueError(f"{self.operator} has schedules of its own: expected winograd=0, or a search by agents.optimize")
        self.hardware = machines.get(hardware)
        check_pitches(self.operator, self.hardware)
        self.space = space
        fit = coefficients_of(self.hardware) if calibrated else ()
        self.floor = roofline_floor(self.operator, self.hardware)
        self.tables = make_tables(self.operator, self.hardware, space, self.floor, fit, constant_values(self.hardware.name))
        self._initial = Schedule(initial_row(self.operator, self.hardware, self.tables.ints))

    @property
    def horizon(self) -> int:
        """Return the maximum number of steps of an episode on this task; see `graph.tables.filling.horizon`."""
        return int(self.tables.ints[HORIZON])

    @cached_property
    def coordinates(self) -> Coordinates:
        """Return the columns that a coordinate descent changes one by one: the tile sizes of each axis, and each knob.

        Knobs that the space fixes keep their initial value. Cached, because listing the columns takes longer than a descent.
        """
        return Coordinates(opened(self._initial.row, self.tables.ints), columns_of(self.tables.ints, self.tables.sizes))

    def initial(self) -> Schedule:
        """Return the unscheduled program: all tiles are 1, the level is registers, knobs have the values of `graph.defaults`."""
        return self._initial

    def is_legal(self, schedule: Schedule) -> bool:
        """Whether the schedule is a node of this graph and within the hardware's limits."""
        return self._is_well_formed(schedule) and bool(rules.fits(plain(schedule.row), self.tables.ints))

    def is_legal_once(self, schedule: Schedule) -> bool:
        """Return whether a schedule is legal, as `is_legal` does, without loading compiled code.

        Use it for a single check in a process: plain Python takes milliseconds, loading the compiled code takes longer.
        """
        ints, sizes = self.tables.ints, self.tables.sizes
        well_formed, fits = interpreted(rules.is_well_formed), interpreted(rules.fits)
        return bool(well_formed(schedule.row, ints, sizes)) and bool(fits(schedule.row, ints))

    def _is_well_formed(self, schedule: Schedule) -> bool:
        return bool(rules.is_well_formed(plain(schedule.row), self.tables.ints, self.tables.sizes))

    def action_mask(self, schedule: Schedule) -> np.ndarray:
        """Return the mask of legal actions, bool [N]. For a schedule that does not belong to this task only `stop` is legal."""
        if not self._is_well_formed(schedule):
            return np.arange(NUM_ACTIONS) == STOP
        return super().action_mask(schedule)

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Return the masks of legal actions of all rows, bool [B, N]. Rows must be legal."""
        masks = np.empty((len(rows), NUM_ACTIONS), dtype=np.int8)
        rules.fill_masks(plain(rows), self.tables.ints, self.tables.sizes, masks)
        return masks.astype(bool)

    def fits(self, rows: np.ndarray, limits: int = EVERY) -> np.ndarray:
        """Whether each of `rows` [B, ROW] is within the hardware's limits, bool [B].

        Rows must be well formed (`rules.is_well_formed`). `limits` has a bit for each limit to check: the sum of constants of
        `graph.knobs.knob` such as `SHARED`.
        """
        fitting = np.empty(len(rows), dtype=np.bool_)
        _fill_fits(plain(rows), self.tables.ints, limits, fitting)
        return fitting

    def transition(self, schedule: Schedule, action: int) -> Schedule:
        """Return the schedule after an action. An illegal action and `stop` return the schedule unchanged."""
        if action == STOP or not self._is_well_formed(schedule):
            return schedule
        return super().transition(schedule, action)

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply one action to each row. Return (next schedules int32 [B, ROW], whether each action was legal, bool [B]).

        Rows must be well formed. After an illegal action the next schedule equals the row.
        """
        results = np.empty_like(rows)
        legal = np.empty(len(rows), dtype=np.bool_)
        rules.transitions(
            plain(rows), np.ascontiguousarray(actions, dtype=np.int64), self.tables.ints, self.tables.sizes, results, legal
        )
        return results, legal

    def room(self) -> np.ndarray:
        """Return a new scratch array for the compiled analytic model of this task.

        Each thread needs its own (`cost.model.room`).
        """
        return model.room(self.tables.ints)

    def latency(self, schedule: Schedule) -> float:
        """Return the seconds that the analytic model predicts for a schedule; infinite for an illegal schedule."""
        if not self.is_legal(schedule):
            return float("inf")
        return super().latency(schedule)

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Return the predicted seconds of every row, float64 [B]; infinite if a row exceeds the hardware's limits.

        Rows must be well formed.
        """
        self.charge(len(rows))
        seconds = np.empty(len(rows), dtype=np.float64)
        model.fill_latencies(plain(rows), self.tables.ints, self.tables.floats, self.room(), seconds)
        return seconds

    def terms(self, schedule: Schedule) -> dict[str, float]:
        """Return the terms of the predicted latency, in seconds, by name (`cost.terms.TERMS`). The schedule may be illegal.

        ValueError if a tile is below 1, or if the level or a knob is out of range.
        """
        row = plain(schedule.row)
        values = [len(knob.values) for knob in KNOBS]
        if row[:LEVEL].min() < 1 or not 0 <= row[LEVEL] < MAX_LEVELS or ((row[KNOB:] < 0) | (row[KNOB:] >= values)).any():
            raise ValueError(f"no schedule: row {row.tolist()} has a tile below 1, or its level or a knob out of range")
        return dict(zip(TERMS, self.terms_of(row[None])[0, 1:].tolist(), strict=True))

    def terms_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the predicted latency of every row and the model's terms of it, in seconds: float64 [B, 1 + terms].

        Column 0 has the latency. Rows must be well formed.
        """
        self.charge(len(rows))
        found = np.zeros((len(rows), 1 + NUM_TERMS))
        model.fill_terms(plain(rows), self.tables.ints, self.tables.floats, self.room(), found)
        return found

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: Schedule | None = None
    ) -> Schedule:
        """Draw a schedule: the end of a random walk over legal actions that prefers growing tiles to shrinking them (2 to 1).

        The walk begins at the unscheduled program, or at `start`, which must be legal. It takes `steps` steps, or a random number
        of steps if None. Every legal schedule of the space can be drawn; the distribution is not uniform.
        """
        count = steps if steps is not None else int(rng.integers(self.horizon // 2, self.horizon))
        return Schedule(self.walk((start or self._initial).row, rng.random(count))[-1])

    def walk(self, row: np.ndarray, draws: np.ndarray, weights: np.ndarray = _WEIGHTS) -> np.ndarray:
        """Take a walk from a legal `row`, one step for each of `draws` [steps]. Return its rows, int32 [1 + steps, ROW].

        Each draw is a float64 in [0, 1) that chooses the action of a step. `weights` float64 [N] are the relative frequencies of
        the actions. The row stays the same at a step where only `stop` is legal.
        """
        way = np.empty((1 + len(draws), ROW), dtype=np.int32)
        way[0] = row
        _walk(way, draws, weights, self.tables.ints, self.tables.sizes)
        return way

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Yield every legal schedule of the space in batches of rows, int32 [<= batch, ROW], with tiles for all memory levels.

        Knobs that the space fixes keep their initial value. Schedules whose construction stopped at a lower level are left out,
        because they are the same programs as schedules of all levels. ValueError if `batch` is below 1.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch!r}: expected at least one row")
        return enumerate_rows(self.coordinates, self.tables.ints, batch)


@compiled
def _walk(way: np.ndarray, draws: np.ndarray, weights: np.ndarray, ints: np.ndarray, sizes: np.ndarray) -> None:
    """Fill way[1:] with the rows of a walk from way[0], one action per draw.

    A draw chooses a legal action other than `stop`, with probability proportional to `weights`.
    """
    scratch, mask = np.empty(ROW, dtype=np.int32), np.empty(NUM_ACTIONS, dtype=np.int8)
    for step, draw in enumerate(draws):
        fill_mask(way[step], ints, sizes, scratch, mask)
        mask[STOP] = 0
        left = 0.0
        for action in range(NUM_ACTIONS):
            left += weights[action] * mask[action]
        left *= draw
        chosen = STOP
        for action in range(NUM_ACTIONS):
            if mask[action] == 1:
                chosen = action
                if left < weights[action]:
                    break
                left -= weights[action]
        transition(way[step], chosen, ints, sizes, scratch, way[step + 1])


@compiled
def _fill_fits(rows: np.ndarray, ints: np.ndarray, limits: int, fitting: np.ndarray) -> None:
    for b in range(rows.shape[0]):
        fitting[b] = within(rows[b], ints, limits)
