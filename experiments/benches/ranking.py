"""Benchmark of the model's ranking: its predictions compared with the times of many programs of each operator.

Up to `programs` programs of each operator are timed. They are random legal schedules of space `extended`, all trials of searches
by the strategies, the first programs of a construction's ranking, and programs spread over the remaining ranking. Random
schedules slower than `slowest_s` by the model are left out and counted. Equal kernels count once. Some random programs are timed
again: the rank correlation of both timings is the ceiling for any model. Every timing is written at once, so that the command
resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track

from agents.gensor.markov import MarkovExtended
from agents.runs.journal import Journal
from experiments.benches.lines import Lines, machine, resolved, searched
from experiments.common import style
from experiments.common.statistics import fastest, spearman
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.operators.types import Operator

# The timed programs of an operator with their sources, in a journal, so that a later run does not time them again.

RANDOM, TOP, SPREAD, AGAIN = "random", "top", "spread", "again"
"""Sources of timed programs, in addition to the names of strategies; `again` marks second timings."""
BATCH = 20


@dataclass(frozen=True)
class Timed:
    """One timing: where the program comes from, its schedule, its kernel's digest, and seconds (infinite if it failed)."""

    source: str
    schedule: str
    digest: str
    seconds: float


class Record:
    """Timings of one operator, read from and added to a journal that has the timings of all operators."""

    def __init__(self, journal: Journal, op: Operator, hw: Hardware, backend: Backend) -> None:
        self.journal, self.op, self.hardware, self.backend = journal, op, hw, backend
        mine = [{name: row[name] for name in row if name != "operator"} for row in journal if row["operator"] == str(op)]
        self.rows = [Timed(**{**row, "seconds": np.inf if row["seconds"] is None else row["seconds"]}) for row in mine]

    def of(self, *sources: str) -> list[Timed]:
        """Return the timings of programs from these sources, in the order they were made."""
        return [row for row in self.rows if row.source in sources]

    def digest(self, schedule: Schedule) -> str:
        """Return the digest of the schedule's kernel."""
        return self.backend.digest(self.op, schedule, self.hardware)

    def first(self) -> list[Timed]:
        """Return the first timing of every distinct kernel; second timings do not count."""
        found: dict[str, Timed] = {}
        for row in self.rows:
            if row.source != AGAIN:
                found.setdefault(row.digest, row)
        return list(found.values())

    def measure(self, source: str, schedules: list[Schedule]) -> None:
        """Time those of the schedules that have no timing from this source yet."""
        known = {row.schedule for row in self.of(source)}
        fresh = [schedule for schedule in schedules if str(schedule) not in known]
        batches = [fresh[i : i + BATCH] for i in range(0, len(fresh), BATCH)]
        for batch in track(batches, f"{source} of {self.op}", console=Console(stderr=True)):
            for schedule, got in zip(batch, self.backend.stream(self.op, batch, self.hardware), strict=True):
                self.add(Timed(source, str(schedule), got.digest, got.seconds))

    def add(self, row: Timed) -> None:
        """Add a timing to the rows and to the journal."""
        self.rows.append(row)
        seconds = row.seconds if np.isfinite(row.seconds) else None
        self.journal.add({"operator": str(self.op), **row.__dict__, "seconds": seconds})


SPACE = "extended"
TRIES = 20
"""Largest number of random draws per wanted schedule; after that many, the space counts as exhausted."""
KINDS = {RANDOM: (style.PALETTE[7], "."), "searches": (style.PALETTE[0], "o"), "ranking": (style.PALETTE[4], ".")}
"""Kind of programs -> (colour, marker) of its points in the figure."""
TARGETS = {"spearman": 0.85, "spearman_fastest": 0.6, "top_over_best": 1.1}


def rank(config: DictConfig, emit: Lines) -> None:
    """Time programs of each operator and score the model; emit a line for each operator and one over all, and draw the figure."""
    settings, hw, folder = config.model.ranking, hardware.get("host"), Path(config.output)
    backend = get_backend("cpu", hw)
    journal = Journal(Path(settings.timings or folder / "ranking_timings.jsonl"), ())
    emit(kind="machine", **machine())
    lines, panels = [], []
    for op in resolved(settings.operators):
        record = Record(journal, op, hw, backend)
        graph = ConstructionGraph(op, hw, SPACE)
        drawn = fill(record, graph, settings, config.seed)
        lines.append(score(record, graph, int(settings.top)))
        emit(kind="ranking", operator=str(op), part=operators.part_of(op), **drawn, **lines[-1], targets=TARGETS)
        panels.append((record, graph))
    means = {name: float(np.nanmean([line[name] for line in lines])) for name in TARGETS}
    kept = {name: sum(_keeps(name, line[name]) for line in lines) for name in TARGETS}
    emit(kind="all", operators=len(lines), mean=means, target_kept=kept, targets=TARGETS)
    if config.figures:
        _draw(panels, int(settings.top), folder / "ranking.png")


def fill(record: Record, graph: ConstructionGraph, settings: Any, seed: int) -> dict[str, int]:
    """Time the programs that the record lacks; return `drawn`, the number of random schedules, and `left_out`, those too slow."""
    rng = np.random.default_rng(seed)
    chosen, drawn, slow = _random(record, graph, settings, rng)
    record.measure(RANDOM, chosen)
    for name in settings.strategies:
        _search(record, name, settings.trials, seed)
    ranked: dict[str, Schedule] = {}
    for schedule in MarkovExtended().construct(graph, np.random.default_rng(seed)).schedules:
        ranked.setdefault(record.digest(schedule), schedule)
    record.measure(TOP, list(ranked.values())[: int(settings.top)])
    have = {row.digest for row in record.first()}
    rest = [schedule for digest, schedule in ranked.items() if digest not in have]
    missing = max(0, settings.programs - len(have) + len(record.of(SPREAD)))
    if rest and not record.of(SPREAD):
        places = np.unique((np.linspace(0.0, 1.0, min(missing, len(rest))) ** 2 * (len(rest) - 1)).astype(int))
        record.measure(SPREAD, [rest[place] for place in places])
    again = [Schedule.parse(row.schedule) for row in _again(record.of(RANDOM), settings.repeated)]
    if not record.of(AGAIN):
        record.measure(AGAIN, again)
    return {"drawn": drawn, "left_out": slow}


def _random(record: Record, graph: ConstructionGraph, settings: Any, rng: np.random.Generator) -> tuple[list[Schedule], int, int]:
    """Return (schedules, drawn, slow): random schedules with different kernels, and how many were drawn and were too slow."""
    have = [Schedule.parse(row.schedule) for row in record.of(RANDOM)]
    if len(have) >= settings.random:
        return have, 0, 0
    chosen: dict[str, Schedule] = {}
    drawn = slow = 0
    while len(chosen) < settings.random and drawn < TRIES * settings.random:
        schedule, drawn = graph.random_schedule(rng), drawn + 1
        if graph.latency(schedule) > settings.slowest_s:
            slow += 1
        else:
            chosen.setdefault(record.digest(schedule), schedule)
    return list(chosen.values()), drawn, slow


def _search(record: Record, name: str, trials: int, seed: int) -> None:
    """Run a search and add its trials to the record, unless they are there; an interrupted search starts again."""
    if len(record.of(name)) >= trials:
        return
    known = {row.schedule for row in record.of(name)}
    for trial in searched(record.op, record.hardware, record.backend, name, trials, seed).trace:
        if trial.schedule not in known:
            record.add(Timed(name, trial.schedule, record.digest(Schedule.parse(trial.schedule)), trial.seconds))


def _again(rows: list[Timed], count: int) -> list[Timed]:
    """Return `count` programs to time again: half are the fastest, half are spread over the slower programs."""
    ordered = sorted((row for row in rows if np.isfinite(row.seconds)), key=lambda row: row.seconds)
    fast, rest = ordered[: count // 2], ordered[count // 2 :]
    places: list[int] = np.unique(np.linspace(0, len(rest) - 1, count - len(fast)).astype(int)).tolist() if rest else []
    return [*fast, *(rest[place] for place in places)]


def score(record: Record, graph: ConstructionGraph, top: int) -> dict[str, Any]:
    """Score the model on the timed programs of an operator and return fields of a result row.

    They include rank correlations of random programs' times with predictions and with second timings, and the time of the best of
    the model's first `top` programs over the best time.
    """
    rows, everything = (_well(rows, graph) for rows in (record.of(RANDOM), record.first()))
    seconds, predicted = _pair(rows, graph)
    fast = fastest(seconds)
    before = {row.schedule: row.seconds for row in rows}
    pairs = np.array([(before[row.schedule], row.seconds) for row in record.of(AGAIN) if row.schedule in before])
    times, ranks = _pair(everything, graph)
    first = np.argsort(ranks, kind="stable")[:top]
    best = everything[int(np.argmin(times))]
    quick = seconds[fast].max(initial=0.0)
    again = pairs[pairs[:, 0] <= quick] if len(pairs) else pairs
    line: dict[str, Any] = {
        "random": len(rows), "programs": len(everything), "failed": len(record.first()) - len(everything),
        "spearman": _rank(predicted, seconds), "spearman_fastest": _rank(predicted[fast], seconds[fast]),
        "again": _rank(*pairs.T) if len(pairs) else float("nan"),
        "again_fastest": _rank(*again.T) if len(again) else float("nan"),
        "top_over_best": float(times[first].min() / times.min()), "best_s": best.seconds, "best_from": best.source,
        "best_schedule": best.schedule,
    }  # fmt: skip
    sources = dict.fromkeys(row.source for row in everything)
    line["best_by_source_s"] = {name: min(row.seconds for row in everything if row.source == name) for name in sources}
    return line


def _well(rows: list[Timed], graph: ConstructionGraph) -> list[Timed]:
    """Return the timings that succeeded and whose schedules are legal under the present rules."""
    return [row for row in rows if np.isfinite(row.seconds) and graph.is_legal(Schedule.parse(row.schedule))]


def _pair(rows: list[Timed], graph: ConstructionGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return (measured, predicted): the seconds of programs, float64 [B] each."""
    stacked = graph.stack([Schedule.parse(row.schedule) for row in rows])
    return np.array([row.seconds for row in rows]), graph.latencies(stacked)


def _rank(a: np.ndarray, b: np.ndarray) -> float:
    return spearman(a, b) if len(a) > 2 else float("nan")


def _keeps(name: str, value: float) -> bool:
    return value <= TARGETS[name] if name == "top_over_best" else value >= TARGETS[name]


def _draw(panels: Sequence[tuple[Record, ConstructionGraph]], top: int, path: Path) -> None:
    with plt.rc_context(style.RC):
        figure, grid = style.panels(len(panels), 4, (3.4, 3.1), 0.5)
        for axes, (record, graph) in zip(grid.flat, panels, strict=False):
            _panel(axes, record, graph, top)
        for axes in grid[:, 0]:
            axes.set_ylabel("measured")
        for axes in grid[-1]:
            axes.set_xlabel("model")
        handles = [Line2D([], [], color=c, marker=m, linestyle="") for c, m in KINDS.values()]
        handles.append(Line2D([], [], color=style.PALETTE[1], marker="o", fillstyle="none", linestyle=""))
        figure.legend(handles, [*KINDS, f"the model's first {top}"], loc="outside upper center", ncols=4)
        style.save(figure, path)


def _panel(axes: Axes, record: Record, graph: ConstructionGraph, top: int) -> None:
    rows = [row for row in record.first() if np.isfinite(row.seconds)]
    model = graph.latencies(graph.stack([Schedule.parse(row.schedule) for row in rows]))
    seconds = np.array([row.seconds for row in rows])
    kind_of = {RANDOM: RANDOM, TOP: "ranking", SPREAD: "ranking"}
    kinds = np.array([kind_of.get(row.source, "searches") for row in rows])
    for kind, (colour, marker) in KINDS.items():
        mine = kinds == kind
        axes.plot(model[mine], seconds[mine], marker, color=colour, markersize=4, alpha=0.7, markeredgewidth=0, linestyle="")
    first = np.argsort(model, kind="stable")[:top]
    axes.plot(model[first], seconds[first], "o", color=style.PALETTE[1], fillstyle="none", markersize=7, linestyle="")
    style.model_lines(axes, model, seconds)
    axes.set_title(style.short_operator(str(record.op)), fontsize=7.5)
