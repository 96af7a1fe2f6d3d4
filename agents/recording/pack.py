"""Pack a recording as a table of Measured v1 with a machine description and a data card: the last step of `gensor collect`."""

from __future__ import annotations

import datetime
import math
import shutil
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pandas

from agents.runs.files import write_text
from agents.runs.journal import Row
from agents.runs.texts import table
from gensor_gym.files import whole
from gensor_gym.hardware.described import FILE
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.measured import PARTS
from gensor_gym.measure.stats.intervals import half_width

HEAD = ("part", "class", "operators", "programs", "first of `markov_ext` over the best", "slowest over the best")
PAUSE = 60.0
"""Number of seconds between two trials beyond which the recording counts as paused."""


def packed(rows: Iterable[Row]) -> pandas.DataFrame:
    """Turn a journal's rows into a table of Measured v1, sorted by part and operator.

    `gensor_gym.measure.records.measured` describes the columns.
    """
    first, again = list[Row](), dict[tuple[str, str], float]()
    for row in rows:
        if row["pass"]:
            again[row["operator"], row["digest"]] = _quiet(row)
        else:
            first.append(row)
    found = pandas.DataFrame(
        {
            "part": row["part"], "operator": row["operator"], "origin": row["origin"], "rank": row["rank"],
            "schedule": row["schedule"], "status": row["status"], "seconds": _seconds(row), "quiet": _quiet(row),
            "spread": _spread(row), "samples": len(row["samples"]),
            "again": again.get((row["operator"], row["digest"]), math.nan),
            "others": row["others"], "compile_s": row["compile_s"],
        }
        for row in first
    )  # fmt: skip
    found["part"] = pandas.Categorical(found["part"], PARTS)
    return found.sort_values(["part", "operator"], kind="stable").reset_index(drop=True)


def _seconds(row: Row) -> float:
    return float(f"{statistics.median(row['samples']):.4g}") if row["status"] == Status.OK.value else math.inf


def _quiet(row: Row) -> float:
    return float(f"{Measurement(Status(row['status']), tuple(row['samples'])).quiet_seconds:.4g}")


def _spread(row: Row) -> float:
    """Return the relative precision of the median of a row's samples; NaN with fewer than three samples."""
    return float(f"{half_width(row['samples']):.2g}") if len(row["samples"]) >= 3 else math.nan


def write(rows: Collection[Row], folder: Path, name: str, how: str = "") -> pandas.DataFrame:
    """Write a recording to a folder as NAME.parquet, NAME.json (the machine) and NAME.md (the data card); return the table.

    The folder must have hardware.json, the machine's description. `how` is the data card's sentence on how the programs were
    timed. It is needed unless `gensor collect` timed them.
    """
    found = packed(rows)
    small = found.astype(dict.fromkeys(("seconds", "quiet", "spread", "again", "others", "compile_s"), "float32"))
    small = small.astype({"rank": "int16", "samples": "int16"} | dict.fromkeys(("operator", "origin", "status"), "category"))
    whole(folder / f"{name}.parquet", lambda path: small.to_parquet(path, compression="zstd", compression_level=19), 0o644)
    shutil.copyfile(folder / FILE, folder / f"{name}.json")
    write_text(folder / f"{name}.md", card(found, name, how or _collected(rows)))
    return found


def _collected(rows: Collection[Row]) -> str:
    return (
        f"one thread, packed {datetime.date.today()} by `gensor collect`, recorded in {minutes(rows):.0f} minutes. Every program "
        "was verified against float64 on three draws of its inputs before and after timing"
    )


def minutes(rows: Collection[Row]) -> float:
    """Return the minutes that a recording took, without pauses of more than a minute (`PAUSE`) between two trials."""
    gaps = np.diff(sorted(row["at"] for row in rows))
    return float(gaps[gaps <= PAUSE].sum()) / 60


def card(found: pandas.DataFrame, name: str, how: str) -> str:
    """Return the data card as Markdown text. `how` says how the programs were timed."""
    good = found[found.status == Status.OK.value]
    apart = np.abs(np.log(good.again / good.quiet)).dropna()
    statuses = ", ".join(f"{status} {count}" for status, count in Counter(found.status).most_common())
    floor = [f"{math.exp(value) - 1:.1%}" for value in np.percentile(apart, [50, 90, 97])] if len(apart) else ["-"] * 3
    lines = [
        f"# Measured v1 on {name}", "",
        f"{len(found):,} programs of {found.operator.nunique():,} operators, {how}. Statuses: {statuses}.", "",
        f"A second timing of one program of each operator, some seconds later, differs from the first by {floor[0]} in the "
        f"median, {floor[1]} in nine of ten operators, {floor[2]} in 97 of 100 (quiet seconds).", "",
        *table(HEAD, _classes(good)),
        "", "Columns: `gensor_gym/measure/records/measured.py`. Rules by which operators and programs were chosen: "
        "`agents/recording/`, in a lease `results/gpu_study/README.md`. Licence: Apache-2.0.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _classes(good: pandas.DataFrame) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for (part, operator), rows in good.groupby(["part", "operator"], observed=True):
        best = rows.seconds.min()
        chosen = rows[(rows.origin == "markov_ext") & (rows["rank"] == 0)].seconds
        first = float(chosen.iloc[0] / best) if len(chosen) else math.nan
        kind = str(operator).removeprefix("frozen ").partition("(")[0]
        groups[str(part), kind].append((len(rows), first, float(rows.seconds.max() / best)))
    cells: list[tuple[str, ...]] = []
    for part, kind in sorted(groups, key=lambda key: (PARTS.index(key[0]), key[1])):
        counts, firsts, worst = (np.array(values) for values in zip(*groups[part, kind], strict=True))
        cells.append((part, kind, str(len(counts)), str(int(counts.sum())), f"{_mean(firsts):.2f}", f"{_mean(worst):.1f}"))
    return cells


def _mean(values: np.ndarray) -> float:
    """Return the geometric mean of the finite values; NaN if none is finite."""
    return float(np.exp(np.nanmean(np.log(values)))) if np.isfinite(values).any() else math.nan
