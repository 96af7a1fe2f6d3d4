"""Trials that learn from what was measured how far the model is off."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from agents import get_strategy
from agents.core.feedback import Feedback, Trials, structure_of
from agents.core.programs import Programs
from agents.core.ranking import REGISTER_TILE, STRUCTURE
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status

TASK = ("gemm(m=256, n=192, k=320)", "cascade_lake", "extended")


@pytest.fixture(scope="module")
def graph() -> ConstructionGraph:
    """A task with packing, splits and all tiles."""
    return ConstructionGraph(*TASK)


@dataclass
class Machine:
    """A session whose times are the model's, times `slow` where nothing is packed."""

    graph: ConstructionGraph
    slow: float
    tried: list[tuple[Schedule, float]] = field(default_factory=list)
    others: np.random.Generator | None = None
    """Whose work disturbs most samples."""

    @property
    def best(self) -> Schedule:
        """The fastest program so far."""
        return min(self.tried, key=lambda pair: pair[1])[0]

    def charge(self, count: int) -> None:
        """Evaluations cost nothing here."""

    def measure(self, schedules: list[Schedule]) -> list[Measurement]:
        """One time each."""
        found = []
        for schedule in schedules:
            packed = any(schedule.row[STRUCTURE[:-1]])
            seconds = self.graph.latency(schedule) * (1.0 if packed else self.slow)
            self.tried.append((schedule, seconds))
            samples = np.full(20, seconds)
            if self.others is not None:
                samples[3:] *= self.others.uniform(1.0, 9.0, 17)
            found.append(Measurement(Status.OK, tuple(samples)))
        return found


def ranking(graph: ConstructionGraph) -> dict[Schedule, float]:
    """What a small construction gives."""
    strategy = get_strategy("markov_ext", walkers=16, steps=64, refiners=8, refine_steps=32, descents=4)
    found = strategy.construct(graph, np.random.default_rng(0))  # type: ignore[attr-defined]
    return dict(zip(found.schedules, found.latencies, strict=True))


def run(graph: ConstructionGraph, slow: float, trials: int, others: np.random.Generator | None = None) -> Machine:
    """So many trials."""
    machine = Machine(graph, slow, others=others)
    one = Trials(machine, np.random.default_rng(0), 2, 1.3)  # type: ignore[arg-type]
    left = ranking(graph)
    while len(machine.tried) < trials and left:
        chosen = one._from_ranking(left)
        one._try(chosen, left.pop(chosen))
    return machine


def other_structure(graph: ConstructionGraph, schedule: Schedule) -> Schedule:
    """A legal neighbour that is packed another way."""
    rows, _ = Programs(graph).neighbours(schedule.row)
    return next(s for s in map(Schedule, rows) if structure_of(s) != structure_of(schedule))


def test_a_slow_structure_is_predicted_slow_and_a_common_factor_is_not(graph: ConstructionGraph) -> None:
    """What all structures are off cancels; what one is off alone counts against it."""
    one = graph.initial()
    other = other_structure(graph, one)
    alike, unlike = Feedback(), Feedback()
    for feedback, factor in ((alike, 3.0), (unlike, 1.0)):
        feedback.add(one, 1.0, 3.0)
        feedback.add(other, 1.0, factor)
    assert alike.corrected(one, 1.0) == pytest.approx(alike.corrected(other, 1.0)) == pytest.approx(3.0)
    assert unlike.corrected(one, 1.0) > 2.0 * unlike.corrected(other, 1.0)
    assert unlike.corrected(other, 1.0) == pytest.approx(1.0)


def test_a_failure_counts_as_slow(graph: ConstructionGraph) -> None:
    """And a structure never tried is hoped to be as good as the best."""
    one = graph.initial()
    other = other_structure(graph, one)
    feedback = Feedback()
    feedback.add(one, 1.0, 2.0)
    assert feedback.corrected(other, 1.0) == pytest.approx(2.0)
    feedback.add(other, 1.0, math.inf)
    assert feedback.corrected(other, 1.0) > 4.0


def test_trials_leave_a_structure_that_the_model_flatters(graph: ConstructionGraph) -> None:
    """Where unpacked programs are six times slower than the model says, few of them are measured."""
    honest, misled = run(graph, 1.0, 24), run(graph, 6.0, 24)

    def unpacked(machine: Machine) -> int:
        return sum(not any(s.row[STRUCTURE[:-1]]) for s, _ in machine.tried)

    assert unpacked(honest) > 0, "the model must like some unpacked program, else this says nothing"
    assert unpacked(misled) < max(4, unpacked(honest))
    assert any(misled.best.row[STRUCTURE[:-1]])


def test_other_work_on_the_machine_misleads_no_trial(graph: ConstructionGraph) -> None:
    """The quiet samples alone say what a structure is worth, and which program is the best."""
    quiet = run(graph, 6.0, 16)
    disturbed = run(graph, 6.0, 16, np.random.default_rng(0))
    assert [schedule for schedule, _ in disturbed.tried] == [schedule for schedule, _ in quiet.tried]


def test_nothing_is_measured_twice_and_neighbours_are_new(graph: ConstructionGraph) -> None:
    """Rankings to their end: every program once, and beside them programs that no walk had kept."""
    machine = Machine(graph, 1.0)
    left = dict(sorted(ranking(graph).items(), key=lambda pair: pair[1])[:12])
    known = set(left)
    trials = Trials(machine, np.random.default_rng(0), 2, 1.3)  # type: ignore[arg-type]
    for _ in range(2):  # the second time there is nothing new
        trials.measure(list(left), list(left.values()))
    schedules = [schedule for schedule, _ in machine.tried]
    assert len(set(schedules)) == len(schedules) and known <= set(schedules)
    assert set(schedules) - known
    assert all(graph.is_legal(schedule) for schedule in schedules)


@pytest.mark.parametrize(("per_tile", "near"), [(0, 1.3), (2, 0.9), (2, math.nan)])
def test_rules_that_no_program_meets_are_refused(graph: ConstructionGraph, per_tile: int, near: float) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        Trials(Machine(graph, 1.0), np.random.default_rng(0), per_tile, near)  # type: ignore[arg-type]


def test_a_program_without_a_choice_has_no_neighbours() -> None:
    """One multiplication, and no knobs: nothing fails, nothing is found."""
    one = ConstructionGraph("gemm(m=1, n=1, k=1)", "cascade_lake", "gensor")
    programs = Programs(one)
    rows, seconds = programs.neighbours(one.initial().row)
    assert len(rows) == len(seconds) == 0
    assert programs.descend(one.initial().row)[1] == pytest.approx(one.latency(one.initial()))


def test_columns_change_whole_columns_and_keep_what_they_are_told_to(graph: ConstructionGraph) -> None:
    """Every neighbour is legal and its seconds are the model's; a descent never ends above its start."""
    start = graph.random_schedule(np.random.default_rng(3))
    programs = Programs(graph, fixed=STRUCTURE)
    rows, seconds = programs.neighbours(start.row)
    for at in np.linspace(0, len(rows) - 1, 40).astype(int):
        neighbour = Schedule(rows[at])
        assert graph.is_legal(neighbour) and graph.latency(neighbour) == pytest.approx(seconds[at])
    assert len(np.unique(rows[:, REGISTER_TILE], axis=0)) > 10
    before = graph.evaluations
    row, reached = programs.descend(start.row)
    evaluations = graph.evaluations - before
    assert reached == pytest.approx(graph.latency(Schedule(row))) and reached < graph.latency(start)
    assert structure_of(Schedule(row)) == structure_of(start) and evaluations > len(rows)
    assert programs.descend(row)[1] == reached


def test_structures_near_the_best_are_measured_once_first(graph: ConstructionGraph) -> None:
    """Each by its best program, fastest first; then what was measured decides."""
    left, machine = ranking(graph), Machine(graph, 1.0)
    explored = 1.5
    limit = explored * min(left.values())
    best: dict[bytes, float] = {}
    for schedule, seconds in left.items():
        key = structure_of(schedule)
        best[key] = min(seconds, best.get(key, math.inf))
    wanted = sorted(seconds for seconds in best.values() if seconds <= limit)
    assert 1 < len(wanted) < len(left)
    trials = Trials(machine, np.random.default_rng(0), 2, 1.3, explored)  # type: ignore[arg-type]
    trials.measure(list(left), list(left.values()))
    first = [schedule for schedule, _ in machine.tried[: len(wanted)]]
    assert [left[schedule] for schedule in first] == wanted
    assert len({structure_of(schedule) for schedule in first}) == len(wanted)


def test_neighbours_are_ranked_by_the_model_that_is_given(graph: ConstructionGraph) -> None:
    """A model that likes one neighbour alone has it measured, though the analytic model would not draw it."""
    start = min(ranking(graph).items(), key=lambda pair: pair[1])[0]
    rows, seconds = Programs(graph).neighbours(start.row)
    liked = rows[int(np.argmax(seconds))]

    def predict(asked: np.ndarray) -> np.ndarray:
        return np.where((asked == liked).all(axis=1), 0.5, 1.0 + (asked != start.row).any(axis=1))

    trials = Trials(Machine(graph, 1.0), np.random.default_rng(0), 2, 1.3, predict=predict)  # type: ignore[arg-type]
    trials._try(start, graph.latency(start))
    found = trials._neighbour()
    assert found is not None and found == (Schedule(liked), 0.5)
