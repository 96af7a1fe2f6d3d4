"""Results of a comparison as plain values for JSON: a row for each job (search) and a line for each strategy."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.runs.files import write_text
from agents.runs.jobs import Outcome
from agents.runs.settings import Job, Settings, short_hash
from agents.runs.texts import now
from experiments.common.statistics import against, geometric_mean
from experiments.comparison.retime import TORCH, Comparison
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.fingerprint import common
from gensor_gym.foreign import read_json
from gensor_gym.measure.stats.intervals import median_interval, ratio_interval
from gensor_gym.measure.stats.verdict import Verdict, verdict_of
from gensor_gym.plugins import loaded

Interval = dict[str, float]
"""Median and 95 percent interval as {"median", "low", "high"}; the interval assumes no distribution."""

RESAMPLES = 2000
"""Number of resamples of the bootstrap over tasks and seeds."""


def label_of(job: Job, settings: Settings) -> str:
    """Return a job's name among the jobs of its operator: the strategy, with the seed if there are several seeds."""
    several = len({other.seed for other in settings.jobs}) > 1
    return f"{job.strategy}/{job.seed}" if several else job.strategy


def summarise(
    settings: Settings,
    outcomes: dict[str, Outcome],
    statuses: dict[str, list[str]],
    comparisons: dict[str, Comparison],
    before: Mapping[str, Interval],
) -> dict[str, object]:
    """Summarise a comparison as a JSON object with facts, `operators`, a row for each job, and a line for each strategy.

    `outcomes` and `statuses` (the status of every trial) are by job key, `comparisons` (the winners' times) by operator text.
    `before` has torch's times on the same device in an earlier run, by operator text.
    """
    first = settings.jobs[0]
    rows = [_row(job, settings, outcomes[job.key], statuses[job.key], comparisons) for job in settings.jobs]
    return {
        "fingerprint": common(job.fingerprint for job in settings.jobs),
        "date": now(),
        "hardware": first.hardware.name,
        "backend": first.backend,
        "device": first.device,
        "model_only": any(c.model for c in comparisons.values()),
        "operators": {op: _operator(op, settings, found, before.get(op)) for op, found in comparisons.items()},
        "rows": rows,
        "strategies": _strategies(rows),
        "paired": _paired(rows),
        "config": settings.config,
        "plugins": loaded(),
    }


def score(summary: Mapping[str, Any]) -> float:
    """Return the geometric mean, over all jobs, of the winner's time divided by the operator's roofline floor.

    It is infinite if a job has no winner. A comparison returns the score to a Hydra sweeper (optuna), which minimises it.
    """
    floors = {name: facts["roofline_s"] for name, facts in summary["operators"].items()}
    if not all(row["retimed"] for row in summary["rows"]):
        return math.inf
    return float(np.exp(np.mean([np.log(row["retimed"]["median"] / floors[row["operator"]]) for row in summary["rows"]])))


def interval(samples: list[float]) -> Interval:
    """Return the median of the samples with the ends of its interval."""
    low, high = median_interval(samples)
    return {"median": statistics.median(samples), "low": low, "high": high}


def ratio(above: list[float], below: list[float]) -> Interval:
    """Return the median ratio `above` / `below` of paired samples with the ends of its interval."""
    return dict(zip(("median", "low", "high"), ratio_interval(above, below), strict=True))


def apart(samples: list[float], processes: list[int]) -> list[list[float]]:
    """Split samples by the process that timed them; `processes` has the number of samples of each, in order."""
    ends = np.cumsum(processes or [len(samples)])
    return [samples[end - count : end] for end, count in zip(ends, processes or [len(samples)], strict=True)]


def over_processes(found: Sequence[Interval]) -> Interval:
    """Combine the intervals of several processes: the median of their medians, and the hull of the intervals.

    Processes differ in the addresses of code and data, which no interval within a process covers. Three processes are too few for
    a bootstrap.
    """
    return {
        "median": float(np.median([one["median"] for one in found])),
        "low": min(one["low"] for one in found), "high": max(one["high"] for one in found),
    }  # fmt: skip


def _ratio(above: list[float], below: list[float], processes: list[int]) -> Interval:
    pairs = zip(apart(above, processes), apart(below, processes), strict=True)
    return over_processes([ratio(ours, theirs) for ours, theirs in pairs])


def time_over_processes(samples: list[float], processes: list[int]) -> Interval:
    """Return the median time with its interval, computed in every process and combined over processes."""
    return over_processes([interval(part) for part in apart(samples, processes)])


def _operator(text: str, settings: Settings, comparison: Comparison, before: Interval | None) -> dict[str, object]:
    op = next(job.operator for job in settings.jobs if str(job.operator) == text)
    torch = comparison.samples.get(TORCH)
    return {
        "flops": op.flops,
        "roofline_s": roofline_floor(op, settings.jobs[0].hardware),
        "torch": time_over_processes(torch, comparison.processes) if torch else None,
        "torch_before": before,
        "dropped": comparison.dropped,
        "busy": comparison.busy,
        "processes": 0 if comparison.model else len(comparison.processes) or 1,
    }


def _row(
    job: Job, settings: Settings, outcome: Outcome, statuses: list[str], comparisons: dict[str, Comparison]
) -> dict[str, object]:
    label = label_of(job, settings)
    comparison = comparisons.get(str(job.operator))
    samples = comparison.samples.get(label) if comparison else None
    row: dict[str, Any] = {
        "operator": str(job.operator),
        "strategy": job.strategy,
        "seed": job.seed,
        "label": label,
        "status": outcome.status,
        "error": outcome.error or (comparison.dropped.get(label, "") if comparison else ""),
        "retimed": None,
        "over_torch": None,
        "gap_to_best": None,
        "verdict": None,
        "searched_s": outcome.seconds,
        "construction_s": outcome.construction_s,
        "elapsed_s": outcome.elapsed_s,
        "evaluations": outcome.evaluations,
        "training_s": outcome.training_s,
        "trials": outcome.trials,
        "statuses": dict(Counter(statuses)),
        "space": outcome.space,
        "schedule": outcome.schedule,
    }
    if samples and comparison:
        row["retimed"] = time_over_processes(samples, comparison.processes)
        row["gap_to_best"] = _ratio(samples, _best(comparison), comparison.processes)
        if TORCH in comparison.samples:
            row["over_torch"] = _ratio(comparison.samples[TORCH], samples, comparison.processes)
            row["verdict"] = verdict_of(1 / row["over_torch"]["high"], 1 / row["over_torch"]["low"])
    return row


def _best(comparison: Comparison) -> list[float]:
    """Return the samples of the fastest winner.

    It has the least median over rounds of its log time minus the round's mean log time.
    """
    ours = [samples for label, samples in comparison.samples.items() if label != TORCH]
    logs = np.log(np.array(ours))
    return ours[int(np.argmin(np.median(logs - logs.mean(axis=0), axis=1)))]


def _strategies(rows: list[dict]) -> list[dict[str, object]]:
    lines = []
    for name in dict.fromkeys(row["strategy"] for row in rows):
        mine = [row for row in rows if row["strategy"] == name]
        timed = [row for row in mine if row["retimed"]]
        lines.append(
            {
                "strategy": name,
                "jobs": len(mine),
                "timed": len(timed),
                "over_torch": geometric_mean(row["over_torch"]["median"] for row in timed if row["over_torch"]),
                "verdicts": {v: count for v in Verdict if (count := sum(row["verdict"] == v for row in timed))},
                "gap_to_best": geometric_mean(row["gap_to_best"]["median"] for row in timed),
                "construction_s": sum(row["construction_s"] for row in mine),
                "evaluations": sum(row["evaluations"] for row in mine),
                "trials": sum(row["trials"] for row in mine),
                "training_s": next((row["training_s"] for row in mine if row["training_s"] is not None), None),
            }
        )
    return lines


def _paired(rows: list[dict]) -> dict[str, object] | None:
    """Compare strategies with the first one by the times of their winners; None for fewer than two tasks or strategies.

    The score of a search is log(T / T of the best). A strategy without a time for some operator and seed is left out; if this is
    the first strategy, the result is None.
    """
    names, tasks, seeds = (list(dict.fromkeys(row[key] for row in rows)) for key in ("strategy", "operator", "seed"))
    if len(tasks) < 2 or len(names) < 2:
        return None
    scores = {name: np.full((len(tasks), len(seeds), 1), np.nan) for name in names}
    for row in rows:
        if row["gap_to_best"]:
            gap = math.log(row["gap_to_best"]["median"])
            scores[row["strategy"]][tasks.index(row["operator"]), seeds.index(row["seed"]), 0] = gap
    whole = {name: score for name, score in scores.items() if not np.isnan(score).any()}
    first = whole.pop(names[0], None)
    if first is None or not whole:
        return None
    lines = {name: found[0] for name, found in against(whole, first, RESAMPLES).items()}
    return {"reference": names[0], "tasks": len(tasks), "seeds": len(seeds), "strategies": lines}


def torch_before(settings: Settings, comparisons: Mapping[str, Comparison]) -> dict[str, Interval]:
    """Return torch's times on this device in an earlier run, by operator; they show whether two runs are comparable.

    The times of these comparisons then replace the earlier times, in a file for each operator next to the store of trials. Every
    file is written as a whole, so that several processes may write.
    """
    first, before = settings.jobs[0], {}
    about = first.device, first.backend, first.hardware.name, first.hardware.units
    for operator, comparison in comparisons.items():
        if (samples := comparison.samples.get(TORCH)) is None:
            continue
        path = settings.store.parent / f"{settings.store.stem}.torch" / f"{short_hash([operator, *about])}.json"
        known = read_json(path) if path.exists() else None
        mark = short_hash(samples)
        if known is not None and known["mark"] == mark:
            earlier = known.pop("before")  # the file already has this run's samples
        else:
            earlier = {name: value for name, value in known.items() if name != "before"} if known else None
            time = time_over_processes(samples, comparison.processes)
            write_text(path, json.dumps({**time, "date": now(), "mark": mark, "before": earlier}))
        if earlier is not None:
            before[operator] = earlier
    return before
