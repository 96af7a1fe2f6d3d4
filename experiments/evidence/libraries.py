"""Our kernels beside the libraries': the best of many candidates with the mends in, and stage `operators` without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benches.fitting.ranks import spearman
from experiments.common import style
from experiments.common.journal import read_rows
from experiments.evidence import profile
from experiments.evidence.facts import RAW, Facts
from experiments.evidence.figures.libraries import Bar, draw
from experiments.evidence.tables import OPERATORS
from experiments.studies.search.report import table
from gensor_gym import hardware, operators
from gensor_gym.graph.schedule import Schedule

FILE = "libraries_after_mends.jsonl.gz"
PAGE, FIGURE = "libraries.md", "libraries.png"
WEAK = ("torch._int_mm",)
"""Opponents that come nowhere near what the device can do."""
NAMES = {"torch": "torch", "torch nhwc": "torch, channels last"}
UNITS = {0: "CUDA cores", 1: "mma.sync", 2: "wgmma"}
Row = Mapping[str, Any]


def statuses(rows: Iterable[Row]) -> dict[tuple[str, str], Counter[str]]:
    """How many rows of measurements have each status, by (unit, data type)."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        key = UNITS[Schedule.parse(row["schedule"]).knob("tensor_core")], operators.parse(row["operator"]).dtype
        counts.setdefault(key, Counter())[row["status"]] += 1
    return counts


def write(folder: Path, facts: Facts) -> list[str]:
    """Write the page and its figure; returns their names."""
    rows, stage = read_rows(folder / RAW / FILE), read_rows(folder / RAW / OPERATORS)
    figure = draw(bars(rows), folder / FIGURE)
    profiled = profile.section(folder, facts)
    (folder / PAGE).write_text(markdown(rows, stage, facts, figure, profiled), encoding="utf-8")
    return [PAGE, figure]


def markdown(rows: Sequence[Row], stage: Sequence[Row], facts: Facts, figure: str, profiled: Sequence[str]) -> str:
    """The page; `profiled` are the lines on the profile."""
    parts = [operators.part_of(operators.parse(row["operator"])) for row in rows]
    count = {part: parts.count(part) for part in ("train", "validation", "test")}
    timed = [len(_times(row)) for row in rows]
    lines = [
        "# Kernels beside the libraries'", "", facts.head, "",
        "## Best of the first candidates, with the mends", "", facts.source(FILE), "", *_with_mends(rows), "",
        f"Of the {len(rows)} operators " + ", ".join(f"{n} are of the {part} part" for part, n in count.items())
        + ". Library over ours: above 1 ours is faster. Ours is the fastest of the candidates that ran "
        f"({min(timed)} to {max(timed)} an operator; their answers were checked against float64 on the device), chosen and "
        "reported by the same few replays, so it is a little flattered; ours and the library's were not interleaved. Caches are "
        "warm. " + _weak(rows, facts), "",
        f"![{figure}]({figure})", "", "Green: at least 0.9 of the library's rate. The library is torch where none is named.", "",
        "### What the model's order of these candidates was worth", "", *_ranking(rows), "",
        "The model's first candidate over the best: how many times longer the one takes that the model puts first. These are the "
        "top of the model's ranking, not a sample of the space.", "",
        "## A profile of float32 at 4096", "", *profiled, "",
        "## Stage `operators`, without the mends", "", facts.source(OPERATORS), "", *_stage(stage), "",
        "Interleaved rounds, medians with 95 % intervals of the ratio; at most 16 candidates of `markov_ext` and `markov`, fewer "
        "where the stage's time was up. Of the trials of operators of another type than float32 "
        f"{_refused(stage)}: wgmma kernels crashed for want of the first mend, or were refused for want of the second, so "
        "slower ones stand in those lines.", "",
        "Not run: the rest of the stage's operators; `torch.compile` but for those shown; the stage with the mends in; cards of "
        "another kind; anything under locked clocks.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Of every operator and library, for the figure."""
    return [
        (
            style.plain(row["operator"]) + ("" if name == "torch" else f", {NAMES.get(name, name)}"),
            us / best(row)[1], name in WEAK,
        )
        for row in rows
        for name, us in row["libs_us"].items()
    ]  # fmt: skip


def best(row: Row) -> tuple[str, float]:
    """(schedule, microseconds) of the fastest candidate; ValueError where none ran."""
    times = _times(row)
    if not times:
        raise ValueError(f"no candidate of {row['operator']} ran")
    return min(times.items(), key=lambda pair: pair[1])


def _times(row: Row) -> dict[str, float]:
    """Microseconds of the candidates that ran, in the model's order."""
    return {schedule: us for schedule, _, us in row["rows"] if us is not None}


def _with_mends(rows: Sequence[Row]) -> list[str]:
    """A line for each operator and library."""
    lines = []
    for row in rows:
        op = operators.parse(row["operator"])
        schedule, ours = best(row)
        for library, us in row["libs_us"].items():
            name = NAMES.get(library, f"`{library}`") + (" (weak)" if library in WEAK else "")
            lines.append((
                f"`{op}`", operators.part_of(op), f"{ours:.1f}", f"{row['flops'] / ours / 1e6:.0f}", name, f"{us:.1f}",
                f"{us / ours:.2f}", words(Schedule.parse(schedule)),
            ))  # fmt: skip
    return table(("operator", "part", "ours us", "TFLOP/s", "library", "us", "library / ours", "our kernel"), lines)


def words(schedule: Schedule) -> str:
    """A kernel in a few words: the unit, the block's tile, and what stands out."""
    block = "x".join(str(int(n)) for n in schedule.tile[1] if n > 1)
    found = [UNITS[schedule.knob("tensor_core")], block]
    for knob, usual in (("stages", 1), ("raster", 1), ("split_k", 1), ("cluster", 1), ("persistent", 0)):
        if (value := schedule.knob(knob)) != usual:
            found.append(knob if knob == "persistent" else f"{knob} {value}")
    return ", ".join(found)


def _weak(rows: Sequence[Row], facts: Facts) -> str:
    """What is to be said of weak opponents: how far they are from what the device can do."""
    said = []
    for row in rows:
        op = operators.parse(row["operator"])
        peak = dict(hardware.get(facts.machine).tensor_peak).get(op.dtype, 0.0) / 1e12
        said += [
            f"`{name}` is a weak opponent ({row['flops'] / us / 1e6:.0f} of the {peak:,.0f} Tera-operations per second of the "
            f"card, ours {row['flops'] / best(row)[1] / 1e6:.0f}): it says nothing of the best {op.dtype} kernel there is."
            for name, us in row["libs_us"].items() if name in WEAK
        ]  # fmt: skip
    return " ".join(said)


def _refused(rows: Sequence[Row]) -> str:
    """Statuses of the trials of other types than float32, with their counts."""
    found = Counter(
        trial["status"] for row in rows if operators.parse(row["operator"]).dtype != "float32" for trial in row.get("trials", ())
    )
    return ", ".join(f"{count} were {status}" for status, count in found.most_common())


def _ranking(rows: Sequence[Row]) -> list[str]:
    """A line for each operator."""
    lines = []
    for row in rows:
        times = {schedule: us for schedule, us in _times(row).items() if schedule in row["model_us"]}
        predicted = np.array([row["model_us"][schedule] for schedule in times])
        measured = np.array(list(times.values()))
        first = float(measured[int(np.argmin(predicted))] / best(row)[1])
        op = operators.parse(row["operator"])
        lines.append((f"`{op}`", str(len(times)), f"{spearman(predicted, measured):.2f}", f"{first:.2f}"))
    return table(("operator", "candidates", "rank correlation", "first over best"), lines)


def _stage(rows: Sequence[Row]) -> list[str]:
    """A line for each row of the stage that timed something, and what came to nothing."""
    lines, runs = [], sorted({row["run"] for row in rows})
    for row in rows:
        op, run = operators.parse(row["operator"]), f"{runs.index(row['run']) + 1}"
        if "speedup_over" not in row:
            lines.append((f"`{op}`", operators.part_of(op), run, "", "", row["error"]))
            continue
        for library, ratio in row["speedup_over"].items():
            if library == "torch" and row["key"].endswith(" torch.compile"):
                continue  # eager torch has a line of its own
            lines.append((
                f"`{op}`", operators.part_of(op), run, f"{1e6 * row['seconds']['gensor_gym']['median']:.1f}",
                f"{1e6 * row['seconds'][library]['median']:.1f} ({library})",
                f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
            ))  # fmt: skip
    return table(("operator", "part", "run", "ours us", "library us", "library / ours"), lines)
