"""Report on our compiler and TVM, by pairs of searches with one seed, whose kernels were timed in the same rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.runs.sheets.cells import NOTHING, Cell, Given, spread
from agents.runs.sheets.sheet import Sheet
from experiments.common.statistics import bootstrap, geometric_mean
from experiments.comparison.retime import TORCH, Comparison
from experiments.comparison.summary import interval, ratio
from experiments.comparison.table import BUSY
from experiments.peers.runs import Run
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.measure.stats.verdict import Verdict, verdict
from gensor_gym.operators import part_of, resolve_one

FASTEST, SHARE = 1.0, 0.2
"""Aims: largest ratios of our kernel time and of our tuning time to TVM's."""
HEAD = ("operator", "seed", "ours", "TVM", "ours / TVM", "verdict", "tuning ours", "tuning TVM", "ours / TVM, tuning")


def summarise(pairs: Sequence[tuple[Run, Run]], comparisons: dict[str, Comparison]) -> dict[str, Any]:
    """Summarise pairs of searches (ours, TVM's): a row for each pair, and means for each of TVM's numbers of trials.

    Ratios are ours / TVM's: below 1 ours is better. `comparisons` has the samples of the common rounds by operator.
    """
    rows = [_row(ours, theirs, comparisons[ours.plan.operator]) for ours, theirs in pairs]
    trials = list(dict.fromkeys(row["tvm_trials"] for row in rows))
    return {
        "rows": rows,
        "means": [_means(count, [row for row in rows if row["tvm_trials"] == count]) for count in trials],
        "dropped": {f"{label} on {name}": why for name, found in comparisons.items() for label, why in found.dropped.items()},
        "busy": {name: found.busy for name, found in comparisons.items() if found.busy > BUSY},
    }


def _row(ours: Run, theirs: Run, comparison: Comparison) -> dict[str, Any]:
    """Return the row of one pair; times are None if a kernel could not be timed."""
    row: dict[str, Any] = {
        "operator": ours.plan.operator, "part": part_of(resolve_one(ours.plan.operator)), "seed": ours.plan.seed,
        "our_trials": ours.plan.trials, "tvm_trials": theirs.plan.trials, "ours": None, "tvm": None, "time_ratio": None,
        "verdict": None, "over_torch": None, "our_tuning_s": ours.tuning_s, "tvm_tuning_s": theirs.tuning_s,
        "tuning_ratio": ours.tuning_s / theirs.tuning_s,
        "whole_ratio": (ours.tuning_s + ours.startup_s) / (theirs.tuning_s + theirs.startup_s),
        "our_startup_s": ours.startup_s, "tvm_startup_s": theirs.startup_s, "tvm_searched_s": theirs.best_s,
        "our_searched_s": ours.best_s, "tvm_tried": theirs.tried, "tvm_valid": theirs.valid,
    }  # fmt: skip
    mine, their = (comparison.samples.get(run.plan.label) for run in (ours, theirs))
    if mine and their:
        row |= {"ours": interval(mine), "tvm": interval(their), "time_ratio": ratio(mine, their)}
        row["verdict"] = verdict(mine, their).value
        if torch := comparison.samples.get(TORCH):
            row["over_torch"] = {"ours": ratio(torch, mine), "tvm": ratio(torch, their)}
    return row


def _means(trials: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return geometric means over tasks and seeds for one number of TVM's trials, and whether each aim is reached.

    Values that need kernel times are None if no pair was timed.
    """
    timed = [row for row in rows if row["time_ratio"]]
    times = [row["time_ratio"]["median"] for row in timed]
    value: dict[str, Any] = {
        "tvm_trials": trials, "pairs": len(rows), "timed": len(timed), "time_ratio": geometric_mean(times),
        "time_interval": _interval(timed, times), "tuning_interval": _interval(rows, [row["tuning_ratio"] for row in rows]),
        "tuning_ratio": geometric_mean(row["tuning_ratio"] for row in rows),
        "whole_ratio": geometric_mean(row["whole_ratio"] for row in rows),
        "verdicts": {v.value: count for v in Verdict if (count := sum(row["verdict"] == v.value for row in timed))},
    }  # fmt: skip
    mean = value["time_ratio"]
    value["fast_enough"] = None if mean is None else mean <= FASTEST
    value["tuned_fast_enough"] = value["tuning_ratio"] <= SHARE
    return value


def _interval(rows: list[dict[str, Any]], values: list[float]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the geometric mean of `values`, drawing tasks, then seeds.

    It is None unless there are several tasks, all with equally many seeds.
    """
    tasks = list(dict.fromkeys(row["operator"] for row in rows))
    logs = [[math.log(v) for row, v in zip(rows, values, strict=True) if row["operator"] == task] for task in tasks]
    if len(tasks) < 2 or len({len(of) for of in logs}) != 1:
        return None
    low, high = bootstrap(lambda scores: scores.mean(), np.array(logs))
    return math.exp(float(low)), math.exp(float(high))


def lines(
    about: dict[str, Any], summary: dict[str, Any], runs: Sequence[Run], comparisons: dict[str, Comparison]
) -> list[dict[str, Any]]:
    """Return the lines of the results file: facts about the run, searches, raw samples, pairs and means."""
    distinct = {run.plan.key: run for run in runs}.values()
    return [
        {"kind": "study", "stamp": "system comparison", **about},
        *({"kind": "run", **dataclasses.asdict(run)} for run in distinct),
        *({"kind": "samples", **dataclasses.asdict(comparison)} for comparison in comparisons.values()),
        *({"kind": "pair", **row} for row in summary["rows"]),
        *({"kind": "mean", **mean} for mean in summary["means"]),
    ]


def markdown(about: dict[str, Any], summary: dict[str, Any], wrong: Sequence[str]) -> str:
    """Return the results page as Markdown text."""
    versions = about["versions"]
    page = [
        "# Our search and TVM's MetaSchedule", "",
        "**A system comparison.** Spaces, code generators, compilers, thread pools and ways of measuring differ as well as the "
        "searches; no single one of them is credited with a difference.", "",
        f"{about['processor']}, threads: {about['threads']}, {about['date']}, code {about['code']}. "
        f"apache-tvm {versions['apache-tvm']} (LLVM target of this processor, evolutionary search, XGBoost "
        f"{versions['xgboost']}), `{about['strategy']}` named beforehand. Float32, NCHW and OIHW on both sides, outputs checked "
        f"against float64. Winners of one operator timed in one worker in {about['rounds']} interleaved rounds. Ratios are ours "
        f"over TVM's: below 1 ours is faster. Medians with {LEVEL} intervals. Tuning is wall time of the search with building "
        "and measuring; TVM's waits for the machine's timing lock are left out, ours are not; start-up is apart, in "
        "brackets.", "",
        "## Geometric means", "",
        *means(summary).markdown(), "",
        f"Aim: kernels at least as fast (ratio at most {FASTEST:g}) in at most {SHARE:g} of the tuning time.",
    ]  # fmt: skip
    for mean in summary["means"]:
        rows = [row for row in summary["rows"] if row["tvm_trials"] == mean["tvm_trials"]]
        page += ["", f"## TVM with {mean['tvm_trials']} trials, ours with {rows[0]['our_trials']}", ""]
        page += Sheet.of("", HEAD, map(_cells, rows)).markdown()
    parts = {row["operator"]: row["part"] for row in summary["rows"]}
    page += ["", "Parts of split v1: " + "; ".join(f"{name}: {part}" for name, part in parts.items()) + "."]
    page += [f"\nNot timed: {label}: {why}" for label, why in summary["dropped"].items()]
    page += [f"\nNot searched: {text}" for text in wrong]
    page += [f"\nOther programs used {share:.0%} of the processors before {name}." for name, share in summary["busy"].items()]
    return "\n".join(page) + "\n"


MEANS = ("TVM's trials", "pairs", "time", "tuning", "with start-up", "verdicts", "aim")


def _mean_cells(mean: dict[str, Any]) -> tuple[Given, ...]:
    reached = [("kernels", mean["fast_enough"]), ("tuning time", mean["tuned_fast_enough"])]
    aim = ", ".join(f"{name}: {'not known' if value is None else 'reached' if value else 'missed'}" for name, value in reached)
    verdicts = ", ".join(f"{count} {name}" for name, count in mean["verdicts"].items()) or "-"
    return (
        str(mean["tvm_trials"]), f"{mean['timed']} of {mean['pairs']}", _ratio(mean["time_ratio"], mean["time_interval"]),
        _ratio(mean["tuning_ratio"], mean["tuning_interval"]), _ratio(mean["whole_ratio"], None), verdicts, aim,
    )  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[Given, ...]:
    times: tuple[Given, ...] = ("-", "-", "-", "-")
    if row["time_ratio"]:
        found = row["time_ratio"]
        times = (spread(row["ours"]), spread(row["tvm"]), _ratio(found["median"], (found["low"], found["high"])), row["verdict"])
    tuning = [
        Cell(f"{row[f'{name}_tuning_s']:.1f} s (+{row[f'{name}_startup_s']:.1f})", (row[f"{name}_tuning_s"],))
        for name in ("our", "tvm")
    ]
    return (row["operator"], str(row["seed"]), *times, *tuning, _ratio(row["tuning_ratio"], None))


def _ratio(value: float | None, ends: tuple[float, float] | None) -> Cell:
    if value is None:
        return NOTHING
    text = f"{value:.3g}"
    return Cell(f"{text} [{ends[0]:.3g}, {ends[1]:.3g}]", (value, *ends), text) if ends else Cell(text, (value,))


def means(summary: dict[str, Any]) -> Sheet:
    """Return the table of the geometric means, with a row for each of TVM's numbers of trials."""
    return Sheet.of("ours over TVM", MEANS, map(_mean_cells, summary["means"]))


def pairs(summary: dict[str, Any]) -> Sheet:
    """Table of all pairs."""
    rows = ((str(row["tvm_trials"]), *_cells(row)) for row in summary["rows"])
    return Sheet.of("ours beside TVM", ("TVM's trials", *HEAD), rows)
