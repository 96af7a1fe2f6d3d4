"""Tuning time of networks: `python -m experiments.bench suite=tuning tuning.names=[bert]` (conf/bench.yaml).

A network is searched from scratch within a budget of seconds. For several moments of the search, from the moment when every
piece has a kernel, a network is built of the kernels that were the fastest until then. At the end, these networks are called
alternately. The result is a row for each moment, and a last row with the seconds until the network was within 5 % of the
fastest and the time to compile it again (`experiments.networks.again`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_positive, check_whole
from agents.networks import CompiledNetwork
from agents.runs.sheets.cells import seconds
from agents.runs.sheets.sheet import Sheet
from experiments.benches.lines import Lines, Steal, machine
from experiments.benches.networks.suite import checked_names
from experiments.common import style
from experiments.comparison.summary import interval
from experiments.networks.again import compiled_again
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.remembered import remembered
from gensor_gym.measure.session import TraceRow
from gensor_gym.networks.load import NetworkFunction

# Moments of a network's search, each with the network that could have been built at that moment.

@dataclass(frozen=True)
class Trial:
    """A successful trial: seconds since the search began, the computation (operator), the schedule, and the kernel's seconds."""

    at: float
    computation: str
    schedule: str
    seconds: float


@dataclass
class Recorder:
    """Records a search's trials; its clock starts at construction."""

    begin: float = field(default_factory=time.perf_counter)
    trials: list[Trial] = field(default_factory=list)
    computation: str = ""

    @property
    def elapsed(self) -> float:
        """Seconds since construction."""
        return time.perf_counter() - self.begin

    def on_task(self, number: int, of: int, computation: str) -> None:
        """Note the computation that the following trials are about."""
        self.computation = computation

    def on_trial(self, row: TraceRow) -> None:
        """Record a trial that has just ended."""
        self.trials.append(Trial(self.elapsed, self.computation, row.schedule, row.seconds))


@dataclass(frozen=True)
class Moment:
    """A point in time of a search, with the network built of the kernels that were the fastest until then.

    `seconds` and `trials` are those spent until then.
    """

    seconds: float
    trials: int
    function: NetworkFunction


def moments(found: CompiledNetwork, recorder: Recorder, count: int) -> list[Moment]:
    """Return at most `count` moments of a search in order: the last is its end, and each is half as late as the next.

    Moments begin when every computation has a kernel. Among moments with the same kernels, only the earliest is kept.
    """
    wanted = {str(step.computation) for step in found.plan.steps}
    last = recorder.trials[-1].at if recorder.trials else 0.0
    first = min((trial.at for trial in recorder.trials if wanted <= known_at(recorder, trial.at).keys()), default=last)
    times = sorted({max(first, last / 2**power) for power in range(count)})
    made: dict[tuple[str, ...], Moment] = {}
    for at in times:
        known = known_at(recorder, at)
        best = tuple(known[str(step.computation)].schedule for step in found.plan.steps)
        if best not in made:
            number = sum(trial.at <= at for trial in recorder.trials)
            made[best] = Moment(at, number, NetworkFunction(found.plan, _kernels(found, best), found.hardware.units))
    return list(made.values())


def known_at(recorder: Recorder, at: float) -> dict[str, Trial]:
    """Return, for each computation, its fastest trial among the trials that ended within `at` seconds."""
    best: dict[str, Trial] = {}
    for trial in recorder.trials:
        if trial.at <= at and trial.seconds < getattr(best.get(trial.computation), "seconds", float("inf")):
            best[trial.computation] = trial
    return best


def _kernels(found: CompiledNetwork, schedules: tuple[str, ...]) -> list[Kernel]:
    pairs = zip(found.plan.steps, found.results, schedules, strict=True)
    return [remembered(step.computation, type(result.schedule).parse(text), found.hardware) for step, result, text in pairs]


NEAR = 1.05
"""Factor of the fastest time within which a network counts as nearly as fast as the fastest."""
AGAIN = 5
"""Number of compilations in the new process after its first one."""
FIGURES = ("searched_s", "near_after_s", "best_s", "again_s", "again_export_s", "new_process_s", "new_process_export_s")
"""Fields of a network's row that are seconds, in the order of the table's columns."""


def run(config: DictConfig, emit: Lines) -> None:
    """Search for the kernels of each network: emit its lines and draw its figure; then show a table of all networks."""
    settings, folder = config.tuning, Path(config.output)
    names = checked_names(settings, "tuning")
    check_whole(settings, 1, "rounds", "batch", "most_trials", of="tuning.")
    check_positive(settings, "seconds", of="tuning.")
    emit(kind="machine", rounds=settings.rounds, **machine())
    rows: list[dict[str, Any]] = []
    for name in names:
        steal = Steal()
        with TemporaryDirectory(prefix="gensor_gym-tuning-") as store:
            points, found = tuned(name, settings, config.seed, Path(store) / "trials")
        for point in points:
            emit(kind="point", network=name, **point)
        rows.append({"network": name, "batch": settings.batch, "plan": settings.plan, "budget_s": settings.seconds, **found})
        emit(kind="network", **rows[-1], stolen=steal.share())
        if config.figures:
            _draw(points, f"{name}, batch {settings.batch}", folder / f"tuning_{name}.png")
    sheet(rows).show(Console())


def tuned(name: str, settings: DictConfig, seed: int, store: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Search for the kernels of a network, ignoring stored trials. Return (points, facts).

    `points` says how fast the network was at several times during the search; `facts` are fields about the whole search.
    Raise RuntimeError if outputs are wrong.
    """
    from agents.modules import compile_module
    from experiments.benches.networks.process import drawn, fault_of  # which imports torch

    module, inputs, expected = drawn(name, settings.batch, seed)
    recorder = Recorder()
    asked = {"trials": settings.most_trials, "seconds": settings.seconds, "plan": settings.plan}
    asked |= {"seed": seed, "store": str(store)}
    found = compile_module(module, inputs, on_task=recorder.on_task, on_trial=recorder.on_trial, **asked)
    searched = recorder.elapsed
    again = compiled_again(name, settings.batch, seed, AGAIN, asked)
    some = moments(found, recorder, settings.moments)
    calls = [moment.function.bind(*(one.numpy() for one in inputs)) for moment in some]
    for moment, call in zip(some, calls, strict=True):
        if fault := fault_of(call(), expected):
            raise RuntimeError(f"{name} after {moment.seconds:.3g} s: {fault}")
    times = in_turns(calls, settings.rounds)
    points: list[dict[str, Any]] = [
        {"searched_s": moment.seconds, "trials": moment.trials, "time_s": interval(own)}
        for moment, own in zip(some, times, strict=True)
    ]
    best = min(point["time_s"]["median"] for point in points)
    near = next(point["searched_s"] for point in points if point["time_s"]["median"] <= NEAR * best)
    about = {"searched_s": searched, "trials": len(recorder.trials), "best_s": best, "near_after_s": near, **again}
    return points, {**about, "kernels": len(found.kernels), "distinct": len({id(result) for result in found.results})}


def in_turns(calls: Sequence[Any], rounds: int) -> list[list[float]]:
    """Return the seconds of each call in every round; calls alternate, and each is first called once untimed to fill caches."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            call()
            begin = time.perf_counter()
            call()
            found.append(time.perf_counter() - begin)
    return times


def sheet(rows: Sequence[dict[str, Any]]) -> Sheet:
    """Return the table of search and compile times, a row for each network."""
    head = (
        "network", "kernels", "trials", "searched", "within 5 % after", "fastest", "compiled again", "of it torch's export",
        "in a new process", "of it torch's export",
    )  # fmt: skip
    lines = [
        (row["network"], f"{row['kernels']} ({row['distinct']})", str(row["trials"]),
         *(seconds(row[name]) for name in FIGURES))
        for row in rows
    ]  # fmt: skip
    return Sheet.of("tuning networks", head, lines)


def _draw(points: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    at = [point["searched_s"] for point in points]
    times = [1e3 * point["time_s"]["median"] for point in points]
    low, high = ([1e3 * point["time_s"][edge] for point in points] for edge in ("low", "high"))
    with plt.rc_context(style.RC):
        figure, axes = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
        axes.fill_between(at, low, high, step="post", color=style.PALETTE[0], alpha=0.25, linewidth=0)
        axes.step(at, times, where="post", color=style.PALETTE[0], marker="o", markersize=4)
        axes.axhline(NEAR * min(times), color=style.GREY, linewidth=0.9, linestyle="--")
        axes.annotate(f"{NEAR - 1:.0%} above the fastest", (at[-1], NEAR * min(times)), xytext=(0, 3), textcoords="offset points",
                      ha="right", fontsize=7, color=style.GREY)  # fmt: skip
        style.time_axis(axes, "x")
        axes.set_xlabel("time of search, torch's export included")
        axes.set_ylabel("ms a call")
        axes.set_title(title)
        style.save(figure, path)
