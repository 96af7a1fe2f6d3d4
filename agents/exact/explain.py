"""Explain the loss of an episode or a schedule against the optimum: `python -m experiments explain OPERATOR --actions ".."`.

The explanation has three parts: the model's terms for the schedule and for the optimum; for an episode, the loss of every step;
and the fewest columns (an axis with its tiles and virtual threads, or a knob) whose change makes the schedule optimal. If all
states of the task can be visited, a step's loss is exact: the value of the state before the step minus the value of the step's
action (`gensor_gym.exact.values`). In larger spaces values are unknown, and only the latency after each step is listed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agents.cli.parser import Parser
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import certify
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.exact.states import explore
from gensor_gym.exact.values import Values, solve
from gensor_gym.graph.actions import ACTIONS, STOP
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, TILE, VTHREAD, slot_of
from gensor_gym.graph.tables.tables import NUM_LEVELS
from gensor_gym.registry import near

MOST_EXPLORED = 20_000
"""Largest number of states for which values are computed."""
MOST_OPTIMA = 32
"""Largest number of optimal schedules to compare with. Schedules that differ in the fewest columns come first."""
NAMES = {str(action): number for number, action in enumerate(ACTIONS)}


@dataclass(frozen=True)
class Step:
    """One step of an explained episode: the action's name, the program's seconds after it, and the loss through the action.

    The loss is None if the values of states are unknown.
    """

    action: str
    seconds: float
    lost: float | None


@dataclass(frozen=True)
class Change:
    """A change of one axis or knob of a schedule: values before and after in words, and the new program's seconds and terms."""

    column: str
    before: str
    after: str
    seconds: float
    terms: dict[str, float]


def optima_of(graph: ConstructionGraph) -> np.ndarray:
    """Return optimal programs of a task, as rows int32 [N, ROW] with tiles for all levels.

    For a small task they are all optimal programs, otherwise the certified schedule, which ships or is computed now. ValueError
    if that fails.
    """
    try:
        states = explore(graph, MOST_EXPLORED)
    except ValueError:
        return (certificate_of(graph) or certify(graph)).best.row[None]
    opened = states.rows[:, LEVEL] == graph.tables.ints[NUM_LEVELS] - 1
    return states.rows[opened & states.optimal]


def replay(graph: ConstructionGraph, actions: Sequence[str], values: Values | None) -> tuple[Schedule, list[Step]]:
    """Replay the actions of an episode from the unscheduled program; return (last schedule, one `Step` per action).

    ValueError names an unknown or illegal action.
    """
    schedule = graph.initial()
    steps: list[Step] = []
    for number, name in enumerate(actions):
        if steps and steps[-1].action == str(ACTIONS[STOP]):
            raise ValueError(f"step {number + 1}, {name}: expected nothing behind {steps[-1].action}, which ends the episode")
        if name not in NAMES:
            raise ValueError(f"no action {name!r}: expected one such as {', '.join(list(NAMES)[:4])}{near(name, NAMES)}")
        action = NAMES[name]
        if not graph.action_mask(schedule)[action]:
            raise ValueError(f"step {number + 1}, {name}, is illegal at {schedule}")
        lost = _lost(values, schedule, action, graph.horizon - number) if values is not None else None
        schedule = graph.transition(schedule, action)
        steps.append(Step(name, graph.latency(schedule), lost))
    return schedule, steps


def _lost(values: Values, schedule: Schedule, action: int, left: int) -> float:
    """Return the loss through an action: the value of the state minus the value of the action, 0 for the best action.

    `left` is the number of steps left. ValueError beyond the last step.
    """
    if left < 1:
        raise ValueError(f"an episode on this task has {values.horizon} steps at most")
    state = values.states.index(schedule.row)
    if action == STOP or left == 1:
        return float(values.values[left][state] - values.stop[state])
    edge = np.flatnonzero((values.states.source == state) & (values.states.action == action))[0]
    return float(values.values[left][state] - values.edge_values(left)[edge])


def columns(graph: ConstructionGraph) -> dict[str, list[int]]:
    """Return the positions of every axis and knob in an encoded program, by its name `axis NAME` or `knob NAME`."""
    found = {}
    for number, axis in enumerate(graph.operator.axes):
        slot = slot_of(number, len(graph.operator.spatial))
        found[f"axis {axis.name}"] = [*range(TILE + slot, VTHREAD, MAX_AXES), VTHREAD + slot]
    return found | {f"knob {knob.name}": [KNOB + k] for k, knob in enumerate(KNOBS)}


def smallest_changes(graph: ConstructionGraph, schedule: Schedule, optima: np.ndarray) -> list[Change]:
    """Find the fewest axes and knobs that must change to optimal values to make `schedule` as fast as the optimum.

    Return the changes in an order in which each leaves the fastest program.
    """
    row, best = schedule.row.copy(), float(graph.latencies(optima[:1])[0])
    row[LEVEL] = graph.tables.ints[NUM_LEVELS] - 1
    places = columns(graph)
    chosen: tuple[str, ...] | None = None
    target = row
    differing = [[name for name, at in places.items() if (row[at] != other[at]).any()] for other in optima]
    for number in sorted(range(len(optima)), key=lambda i: len(differing[i]))[:MOST_OPTIMA]:
        most = len(differing[number]) if chosen is None else len(chosen) - 1
        subsets = (itertools.combinations(differing[number], count) for count in range(most + 1))
        for names in itertools.chain.from_iterable(subsets):  # the smallest first
            mixed = _mixed(row, optima[number], names, places)
            if graph.latency(Schedule(mixed)) <= best:
                chosen, target = names, optima[number]
                break
    return _in_order(graph, row, target, list(chosen or ()), places)


def _mixed(row: np.ndarray, other: np.ndarray, names: Sequence[str], places: dict[str, list[int]]) -> np.ndarray:
    mixed = row.copy()
    for name in names:
        mixed[places[name]] = other[places[name]]
    return mixed


def _in_order(
    graph: ConstructionGraph, row: np.ndarray, target: np.ndarray, names: list[str], places: dict[str, list[int]]
) -> list[Change]:
    """Order changes of the axes and knobs `names` from `row` to `target`, so that each leaves the fastest legal program."""
    found: list[Change] = []
    while names:
        trials = [_mixed(row, target, [name], places) for name in names]
        seconds = [graph.latency(Schedule(trial)) for trial in trials]
        at = int(np.argmin(seconds))
        name = names.pop(at)
        words = _words(row, name, places[name]), _words(target, name, places[name])
        row = trials[at]
        found.append(Change(name, *words, seconds[at], graph.terms(Schedule(row))))
    return found


def _words(row: np.ndarray, name: str, places: list[int]) -> str:
    if name.startswith("knob"):
        return str(KNOBS[places[0] - KNOB].values[int(row[places[0]])])
    tiles = list(dict.fromkeys(int(n) for n in row[places[:-1]]))
    threads = int(row[places[-1]])
    return " of ".join(map(str, tiles)) + (f", {threads} virtual threads" if threads > 1 else "")


def report(graph: ConstructionGraph, schedule: Schedule, steps: list[Step]) -> Iterator[str]:
    """Yield the lines of text that explain a schedule, and the steps that led to it, against the optimum."""
    optima = optima_of(graph)
    best, seconds = float(graph.latencies(optima[:1])[0]), graph.latency(schedule)
    terms, least = graph.terms(schedule), graph.terms(Schedule(optima[0]))
    yield f"{graph.operator} on {graph.hardware.name} in {graph.space}"
    yield f"{seconds * 1e6:.3f} us, optimum {best * 1e6:.3f} us: regret log(T / T*) = {math.log(seconds / best):.4f}"
    if steps:
        yield "\nstep                          us after   lost"
        for number, step in enumerate(steps, start=1):
            lost = "" if step.lost is None else f"{step.lost:9.4f}"
            yield f"{number:4} {step.action:22} {step.seconds * 1e6:10.3f} {lost}"
    yield "\nterm            us   optimum    difference"
    for name, value in terms.items():
        yield f"{name:10} {value * 1e6:8.3f} {least[name] * 1e6:9.3f} {(value - least[name]) * 1e6:13.3f}"
    changes = smallest_changes(graph, schedule, optima)
    yield f"\nfewest changes to an optimal schedule: {len(changes)}"
    for change in changes:
        moved = [(name, change.terms[name] - terms[name]) for name in terms]
        largest = sorted((m for m in moved if m[1] != 0), key=lambda m: -abs(m[1]))[:3]
        by = ", ".join(f"{name} {delta * 1e6:+.3f}" for name, delta in largest)
        after = f"{change.seconds * 1e6:.3f} us" if math.isfinite(change.seconds) else "not legal by itself"
        yield f"  {change.column}: {change.before} -> {change.after}: {after} ({by or 'no term'})"
        terms = change.terms


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = Parser(prog="python -m experiments explain", description="Explain an episode or a schedule.")
    parser.add_argument("operator")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--space", default="gensor")
    parser.add_argument("--actions", help="an episode: names of actions such as 'tile[4] cache tile[3] stop'")
    parser.add_argument("--schedule", help="text of a schedule, instead of an episode")
    args = parser.parse_args(arguments)
    if (args.actions is None) == (args.schedule is None):
        parser.error("give --actions or --schedule")
    try:
        graph = ConstructionGraph(args.operator, args.hardware, args.space)
        for text in explain(graph, args.actions, args.schedule):
            print(text)
    except ValueError as error:
        parser.error(str(error))
    return 0


def explain(graph: ConstructionGraph, actions: str | None = None, schedule: str | None = None) -> Iterator[str]:
    """Yield lines of text that explain an episode's actions, or a schedule given as text, against the optimum.

    ValueError for an illegal action or schedule.
    """
    if actions is None:
        found = Schedule.parse(schedule or str(graph.initial()))
        if not graph.is_legal(found):
            raise ValueError(f"{found} is not legal for {graph.operator}")
        return report(graph, found, [])
    try:
        values: Values | None = solve(graph, states=explore(graph, MOST_EXPLORED))
    except ValueError:
        values = None
    return report(graph, *replay(graph, actions.split(), values))
