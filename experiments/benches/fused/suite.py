"""Fused operators compared with other libraries: `python -m experiments.bench suite=fused` (conf/bench.yaml).

For every operator, our kernel from a search of a few measured trials is compared with torch eager, torch.compile and ONNX Runtime
on the same inputs. Inputs and existing outputs begin at cache lines. Each library has its own process; one works at a time, in
rounds. Every output is verified by the float64 evaluator's bounds. A second start with the same settings resumes.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.cli.checks import check_whole
from agents.runs.journal import Journal
from agents.runs.settings import code_digest, short_hash
from agents.runs.sheets.cells import NOTHING, Cell, factor, spread
from agents.runs.sheets.sheet import Sheet
from experiments.benches.fused.race import CALLED, INTO, OURS, Lost, raced
from experiments.benches.lines import Lines, Steal, avx2, check_each, machine, once
from experiments.common.statistics import bootstrap
from experiments.comparison.summary import interval, ratio
from gensor_gym.dataflow.table import fused_operator, stand_in
from gensor_gym.gir.nest import row_nest
from gensor_gym.hardware.cpuinfo import usable_cores
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.measure.stats.verdict import verdict

# Our speed-up over the fastest peer from alternating times: for each way to call, and over all operators.

Samples = Mapping[str, Mapping[str, list[float]]]
Row = dict[str, Any]
INNER = "_inner"
FORMS = (CALLED, CALLED + INNER, INTO, INTO + INNER)
"""Forms of call: into a new or an existing output; forms with `_inner` call torch.compile's compiled graph directly."""
HEADLINE, HEADLINE_INNER = "over_best", "over_best" + INNER


def compared(samples: Samples) -> Row:
    """Return the times by library and way of calling, and our speed-up over the fastest other library in each form of call.

    The headline form fills an existing output if that was timed, otherwise it returns a new output.
    """
    row: Row = {"times": {name: {way: interval(found) for way, found in ways.items()} for name, ways in samples.items()}}
    forms = FORMS if INTO in samples[OURS] else FORMS[:2]
    found = {form: one for form in forms if (one := _over_best(samples, form)) is not None}
    counts = INTO if INTO in found else CALLED
    row |= {"forms": found, "counts": counts}
    if counts in found:
        row |= {HEADLINE: found[counts]["over_best"], HEADLINE_INNER: found[counts + INNER]["over_best"]}
        row |= {"best": found[counts]["best"], "verdict": found[counts]["verdict"]}
        row["ratios"] = {form: one.pop("ratios") for form, one in found.items()}
    return row


def _over_best(samples: Samples, form: str) -> Row | None:
    ours = samples[OURS][form.removesuffix(INNER)]
    peers = {name: _samples_of(ways, form) for name, ways in samples.items() if name != OURS}
    if not peers:
        return None
    best = min(peers, key=lambda name: float(np.median(peers[name])))
    theirs = peers[best]
    return {
        "best": best, "over_best": ratio(theirs, ours), "verdict": verdict(ours, theirs),
        "ratios": [b / a for a, b in zip(ours, theirs, strict=True)],
    }  # fmt: skip


def _samples_of(ways: Mapping[str, list[float]], form: str) -> list[float]:
    """Return a library's samples in a form of call, or in the nearest form that it has: some cannot fill an existing output."""
    nearest = (form, form.removesuffix(INNER), form.replace(INTO, CALLED), CALLED)
    return next(ways[name] for name in nearest if name in ways)


def time_of(row: Row, name: str) -> dict[str, float] | None:
    """Return the time of the library `name` in the headline form of call (see `compared`), or with a new output, or None."""
    ways = row["times"].get(name, {})
    found: dict[str, float] | None = ways.get(row["counts"], ways.get(CALLED))
    return found


def overall(rows: Sequence[Row]) -> Row:
    """Summarise all operators: our geometric mean speed-up with its interval, the least speed-up, and counts of verdicts.

    Speed-ups are over the fastest other library for each operator, in the headline form of call (see `compared`).
    """
    line: Row = {"operators": len(rows)}
    line |= {name: Counter(row[name] for row in rows) for name in ("verdict", "best")}
    for name, suffix in ((HEADLINE, ""), (HEADLINE_INNER, INNER)):
        least = min(rows, key=lambda row: row[name]["median"])
        line[name] = geometric_mean([row["ratios"][row["counts"] + suffix] for row in rows])
        line[f"least_{name}"] = {"operator": least["operator"], **least[name]}
    line["called_over_best"] = geometric_mean([row["ratios"][CALLED] for row in rows])
    return line


def geometric_mean(ratios: Sequence[list[float]]) -> dict[str, float]:
    """Return the geometric mean over operators of the median ratio over rounds, with its bootstrap interval."""
    logs = np.log(np.array(ratios))
    low, high = bootstrap(_mean_of_medians, logs)
    return {name: math.exp(value) for name, value in (("median", _mean_of_medians(logs)), ("low", low), ("high", high))}


def _mean_of_medians(scores: np.ndarray) -> float:
    return float(np.mean(np.median(scores, axis=1)))


PROTOCOL = 1
"""Version of the timing procedure; it is raised with each change, so that operators are timed again."""
NAMES = {"eager": "torch eager", "inductor": "torch.compile", "onnxruntime": "ONNX Runtime"}
PACKAGES = {"eager": "torch", "inductor": "torch", "onnxruntime": "onnxruntime"}


def run(config: DictConfig, emit: Lines) -> None:
    """Compare our kernels with those of the other libraries on every operator.

    Emit one line for each operator and one over all, show a table and draw a figure.
    """
    settings, folder = config.fused, Path(config.output)
    check_each(settings, "peers", PACKAGES, "fused")
    check_whole(settings, 1, "trials", "rounds", "threads", of="fused.", null=("threads",))
    threads, peers = settings.threads or usable_cores(), list(settings.peers)
    versions = versions_of(peers)
    emit(kind="machine", threads=threads, versions=versions, rounds=settings.rounds, **machine())
    same = {name: settings[name] for name in ("strategy", "trials", "rounds")}
    same |= {"threads": threads, "peers": peers, "versions": versions, "code": code_digest(), "seed": config.seed}
    same |= avx2()
    rows: list[dict[str, Any]] = []
    with Journal(folder / "fused" / "done.jsonl", ("key",), finite=True) as done:
        for text in stand_in() if settings.shapes is None else settings.shapes:
            key = short_hash([PROTOCOL, str(fused_operator(text)), same])
            rows.append(once(done, key, _operator, text, same, settings.limit_s, folder / "fused" / "inductor"))
            emit(kind="operator", **rows[-1])
    if timed_rows := [row for row in rows if HEADLINE in row]:
        left_out = [row["operator"] for row in rows if HEADLINE not in row]
        emit(kind="all", threads=threads, left_out=left_out, **overall(timed_rows))
        sheet(timed_rows, threads, emit.rows[-1]).show(Console())
        if config.figures:
            _draw(timed_rows, threads, folder / "fused.png")


def versions_of(sides: Iterable[str], packages: Mapping[str, str] = PACKAGES) -> dict[str, str | None]:
    """Return the installed version of each package that these libraries need; None for a package that is not installed."""
    versions: dict[str, str | None] = {packages[name]: None for name in sides if name in packages}
    for package in versions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _operator(text: str, same: dict[str, Any], limit: float, cache: Path) -> dict[str, Any]:
    graph = fused_operator(text)
    row: dict[str, Any] = {"operator": str(graph), "id": text if text in stand_in() else None, "threads": same["threads"]}
    try:
        row_nest(graph)
    except ValueError as error:
        return {**row, "not_covered": str(error)}
    asked = {"operator": text, **{name: same[name] for name in ("strategy", "trials", "seed", "threads")}}
    steal = Steal()
    try:
        found = raced([OURS, *same["peers"]], asked, same["rounds"], limit, cache)
    except Lost as error:
        return {**row, "error": str(error)}
    answers = found["answers"]
    row |= {"missing": found["missing"], "out_of_bounds": found["out_of_bounds"]}
    row |= {**answers.pop(OURS), "notes": {name: facts for name, facts in answers.items() if facts}}
    row |= {**compared(found["samples"]), "samples": found["samples"]}
    row["bytes_per_second"] = graph.compulsory_bytes / row["times"][OURS][row["counts"]]["median"]
    return row | {"waiting_busy": found["waiting_busy"], "stolen": steal.share()}


def sheet(rows: Sequence[dict[str, Any]], threads: int, whole: dict[str, Any]) -> Sheet:
    """Return the table of all operators in the headline form of call (see `compared`), smallest speed-up first."""
    head = ("operator", "over best", "best", "without call overhead", "output", "ours", *PACKAGES)
    ordered = sorted(rows, key=lambda row: row[HEADLINE]["median"])
    lines = [
        (row["operator"], factor(row[HEADLINE]), row["best"], factor(row[HEADLINE_INNER]),
         "new" if row["counts"] == CALLED else "given",
         *(_time(row, name) for name in (OURS, *PACKAGES)))
        for row in ordered
    ]  # fmt: skip
    means = ", without call overhead ".join(factor(whole[name]).text for name in (HEADLINE, HEADLINE_INNER))
    return Sheet.of(f"fused operators, {threads} thread{'s' * (threads > 1)}", head, lines, [f"geometric mean {means}"])


def _draw(rows: Sequence[dict[str, Any]], threads: int, path: Path) -> None:
    from experiments.benches.speed_ups import SpeedUp, draw

    speeds = [row["bytes_per_second"] / 1e9 for row in rows]
    lines = [
        SpeedUp(row["operator"], row[HEADLINE], row[HEADLINE_INNER]["median"], speed,
                speed / row[HEADLINE]["median"], NAMES[row["best"]])
        for row, speed in zip(rows, speeds, strict=True)
    ]  # fmt: skip
    label = f"over the fastest peer as called (dot, {LEVEL} interval), or its code alone (ring)"
    draw(lines, (label, f"GB/s, {threads} thread{'s' * (threads > 1)}: ours (bar), fastest peer (tick)"), path)


def _time(row: dict[str, Any], name: str) -> Cell:
    found = time_of(row, name)
    return NOTHING if found is None else spread(found)
