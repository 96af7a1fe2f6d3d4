"""Kernels of every family against their references: what was right, pruned, crashed and wrong, before the mends and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.journal import read_rows
from experiments.device.stages.correctness import ANSWERED
from experiments.evidence.facts import RAW, Facts
from experiments.studies.search.report import table
from gensor_gym import operators
from gensor_gym.measure.measurement import Status

FILE, BEFORE, AFTER = "correctness.jsonl.gz", "tensor_before_mends.jsonl.gz", "tensor_after_mends.jsonl.gz"
PAGE = "correctness.md"
CHECK = "check"
"""Kind of the rows of drawn kernels; `family` are kernels chosen by hand, which were timed."""
Row = Mapping[str, Any]
FAMILIES: dict[str, Callable[[frozenset[str]], bool]] = {
    "CUDA cores": lambda has: "tensor_core=0" in has,
    "tensor cores, mma.sync": lambda has: "tensor_core=1" in has,
    "tensor cores, wgmma": lambda has: "tensor_core=2" in has,
    "wgmma in clusters of two": lambda has: "cluster=2" in has,
    "persistent blocks": lambda has: "persistent=1" in has,
    "reduction split over blocks": lambda has: "split_k=1" not in has,
    "reduction split over threads": lambda has: "reduce_threads=1" not in has,
    "virtual threads": lambda has: "vthread=True" in has,
    "copies in two to five stages": lambda has: "stages=1" not in has,
    "register buffers in two": lambda has: "register_buffer=2" in has,
    "lanes laid over tiles": lambda has: "warp_tile=0" not in has or "lane_map=1" in has,
    "swizzled or padded shared memory": lambda has: "shared_layout=0" not in has,
    "more than 48 KiB of shared memory": lambda has: "shared=opt-in" in has,
    "convolution as a matrix product": lambda has: "convolution=3" in has,
    "threads that are no whole warps": lambda has: "odd threads=True" in has,
    "all": lambda has: True,
}
"""A kernel may be of several."""


def write(folder: Path, facts: Facts) -> list[str]:
    """Write the page; returns its name."""
    rows, before, after = (read_rows(folder / RAW / name) for name in (FILE, BEFORE, AFTER))
    (folder / PAGE).write_text(markdown(rows, before, after, facts), encoding="utf-8")
    return [PAGE]


def markdown(rows: Sequence[Row], before: Sequence[Row], after: Sequence[Row], facts: Facts) -> str:
    """The page."""
    drawn = [row for row in before if row["kind"] == CHECK]
    lines = [
        "# Correctness by family", "", facts.head, "",
        "A kernel is right when its answer on the device is within the accepted error of a float64 reference (integers: equal). "
        "Pruned kernels spill registers, or wgmma instructions in them are serialised, as the compiler says; they are not run.",
        "", "## All families, before the mends", "", facts.source(FILE), "", *_families(rows), "",
        f"{len(rows)} kernels of {len({row['operator'] for row in rows})} operators of awkward extents: {_said(rows)}. A kernel "
        "counts in every family that it is of.", "", "### By class of operator and type", "", *_classes(rows), "",
        "### What was not right", "", *_failures(rows), "",
        "## wgmma, drawn, before and after", "", facts.source(BEFORE), "", facts.source(AFTER), "",
        *table(
            ("70 drawn wgmma kernels" if len(drawn) == len(after) == 70 else "drawn wgmma kernels", *_NAMES),
            [("before", *_counts(drawn)), ("after", *_counts(after))],
        ), "",
        f"Before: {_said(drawn)}. After: {_said(after)}; of the kernels that the compiler does not prune, "
        f"{_answered(after)} of {len(after) - _pruned(after)} are right. {_mended(drawn, after)} kernels that were wrong "
        "before are right after. Kernels of large matrix products chosen by hand (float32, bfloat16, float16), before: "
        f"{_by_status(row for row in before if row['kind'] == 'family')}; IMPLAUSIBLE is a right answer in less time than the "
        "floor of believable times, which was that of CUDA cores.", "",
        "## The mends", "", *facts.mended, "",
        "Not run on the device: the families of the first table with the mends in (only wgmma was run again); another kernel in "
        "place of the wrong one; other GPUs.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


_NAMES = ("kernels", "right", "pruned", "crashed", "wrong")
_PRUNED, _CRASHED, _WRONG = Status.COMPILE_ERROR.value, Status.CRASHED.value, Status.WRONG_ANSWER.value


def _counts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Cells of `_NAMES`; ValueError for a status that has no column."""
    found = Counter(row["status"] for row in rows)
    if unknown := set(found) - {*ANSWERED, _PRUNED, _CRASHED, _WRONG}:
        raise ValueError(f"statuses {sorted(unknown)} have no column on the page of correctness")
    return tuple(map(str, (len(rows), _answered(rows), found[_PRUNED], found[_CRASHED], found[_WRONG])))


def _said(rows: Sequence[Row]) -> str:
    """Counts in words."""
    _, right, pruned, crashed, wrong = _counts(rows)
    return f"{right} right, {pruned} pruned, {crashed} crashed, {wrong} wrong"


def _answered(rows: Sequence[Row]) -> int:
    """How many answers were right."""
    return sum(row["status"] in ANSWERED for row in rows)


def _pruned(rows: Sequence[Row]) -> int:
    """How many were not run."""
    return sum(row["status"] == _PRUNED for row in rows)


def _mended(before: Sequence[Row], after: Sequence[Row]) -> int:
    """How many that were wrong are right."""
    wrong = {(row["operator"], row["schedule"]) for row in before if row["status"] == _WRONG}
    return sum((row["operator"], row["schedule"]) in wrong and row["status"] in ANSWERED for row in after)


def _by_status(rows: Iterable[Row]) -> str:
    """Statuses with their counts."""
    return ", ".join(f"{name} {count}" for name, count in Counter(row["status"] for row in rows).most_common())


def _families(rows: Sequence[Row]) -> list[str]:
    """A line for each family."""
    lines = []
    for name, belongs in FAMILIES.items():
        mine = [row for row in rows if belongs(frozenset(row["features"]))]
        lines.append((name, *_counts(mine)))
    return table(("family", *_NAMES), lines)


def _classes(rows: Sequence[Row]) -> list[str]:
    """A line for each class of operators and type."""
    mine: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        op = operators.parse(row["operator"])
        mine.setdefault((op.name, op.dtype), []).append(row)
    return table(("class", "type", *_NAMES), [(*key, *_counts(found)) for key, found in sorted(mine.items())])


def _failures(rows: Sequence[Row]) -> list[str]:
    """Reasons of crashes with their counts, and every wrong kernel."""
    crashes = Counter(row["error"].strip().splitlines()[-1] for row in rows if row["status"] == _CRASHED)
    wrong = [row for row in rows if row["status"] == _WRONG]
    return [
        *(f"- {count} crashed: `{reason}`" for reason, count in crashes.most_common()),
        *(f"- wrong: `{r['operator']}` with `{r['schedule']}`: {r['error']} (its source stands in the raw row)" for r in wrong),
    ]
