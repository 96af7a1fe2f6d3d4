"""GraphNet's speed-up score, and the page and figure of a run.

S(t) is as in `calculate_scores` of GraphNet's graph_net_bench/analysis_util.py: the geometric mean over all graphs of the
speed-up over eager torch, where a graph that fails, or that is farther from eager torch than t allows, counts as `FAILED`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from agents.runs.texts import seconds_text, table
from experiments.common.style import PALETTE, RC, ratio_axis, save

TOLERANCES = range(-10, 6)
"""Tolerances t: a tensor of float32 is near enough if allclose with atol = 10**t and rtol = 10**(t * 5.886 / 5)."""
PRECISIONS = {
    torch.float16: (3 / 5, 1.0), torch.bfloat16: (1.796 / 5, 1.0), torch.float32: (5.886 / 5, 1.0), torch.float64: (7 / 5, 7 / 5),
}  # fmt: skip
"""Data type -> (exponent of rtol, of atol) for each unit of t, from GraphNet's datatype_tolerance_config.py.

Tensors of other types must be equal.
"""
FAILED = 0.1
"""What a graph counts that fails: GraphNet's default of b. Its default of p, 0, makes slow-downs count as they are."""
STATUSES = ("right", "wrong", "refused", "error", "slow")
Row = Mapping[str, Any]


def closest(expected: Sequence[Tensor], found: Sequence[Tensor]) -> int | None:
    """Return the smallest exponent of `TOLERANCES` at which all results are near those of eager torch; None if there is none."""
    if [one.dtype for one in expected] != [one.dtype for one in found]:
        return None
    return next((t for t in TOLERANCES if all(_is_near(*pair, t) for pair in zip(expected, found, strict=True))), None)


def _is_near(expected: Tensor, found: Tensor, t: int) -> bool:
    if expected.shape != found.shape:
        return False
    if expected.dtype not in PRECISIONS:
        return torch.equal(expected, found)
    rtol, atol = (10 ** (t * exponent) for exponent in PRECISIONS[expected.dtype])
    return torch.allclose(found, expected, rtol=rtol, atol=atol)


def speed_up(row: Row) -> float | None:
    """Return how many times as fast as eager torch a graph is; None if it was not timed."""
    return row["eager_s"] / row["call_s"] if "call_s" in row else None


def score(rows: Sequence[Row], t: int) -> float:
    """Return S(t) of timed rows; raise ValueError without rows."""
    if not rows:
        raise ValueError("no rows: expected one or more graphs")
    near = (speed_up(row) if row.get("closest") is not None and row["closest"] <= t else None for row in rows)
    return math.exp(sum(math.log(one or FAILED) for one in near) / len(rows))


def page(by_side: Mapping[str, Sequence[Row]], facts: Mapping[str, str]) -> str:
    """Return a page about the rows of each compiler: counts, scores, and the graphs that are not right.

    `facts` describe the run. Rows that torch did not run are counted apart.
    """
    left_out = sum(row["status"] == "left out" for row in by_side["ours"])
    by_side = {side: [row for row in rows if row["status"] != "left out"] for side, rows in by_side.items()}
    lines = [
        "# Graphs of GraphNet", "",
        "Graphs that others captured from networks (arXiv 2510.24035), drawn by a seed, with weights and inputs drawn from",
        "their metadata: `gensor bench suite=graphnet`. *Right*: within the bounds of `experiments/conformance`, against eager",
        "torch or float64. *Refused*: named by the compiler. *Slow*: not done in time. S(t) is GraphNet's score at tolerance t:",
        f"the geometric mean of the speed-up over eager torch; a graph that fails or is inaccurate counts {FAILED:g}.", "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        f"- left out, because torch does not run them or takes too long: {left_out}", "",
        *table(("", *by_side), _counts(by_side)),
    ]  # fmt: skip
    if any("call_s" in row for row in by_side["ours"]):
        lines += ["", "![S(t) and speed-ups](graphnet.png)"]
    for side, rows in by_side.items():
        bad = [row for row in rows if row["status"] != "right"]
        lines += ["", f"## Not right: {side}", "", "| graph | | |", "|---|---|---|"] if bad else []
        lines += [f"| {row['graph'].removeprefix('samples/')} | {row['status']} | {_short(row['said'])} |" for row in bad]
    return "\n".join(lines) + "\n"


def _short(said: str) -> str:
    return said.replace("|", "/").replace("\n", " ").partition("; did you")[0][:200]


def _counts(by_side: Mapping[str, Sequence[Row]]) -> list[tuple[str, ...]]:
    counted = {side: Counter(row["status"] for row in rows) for side, rows in by_side.items()}
    blind = [sum(not row.get("depends", True) for row in rows) for rows in by_side.values()]
    lines = [("graphs", *(str(len(rows)) for rows in by_side.values()))]
    lines += [("of them, results hardly depend on the inputs", *map(str, blind))]
    lines += [(status, *(str(counts[status]) for counts in counted.values())) for status in STATUSES]
    if not any("call_s" in row for row in by_side["ours"]):
        return lines  # verified only: seconds may be those of a busy machine
    for name, key in (("median seconds to compile", "compiled_s"), ("median speed-up over eager", "")):
        values = [[row[key] if key else speed_up(row) for row in rows if (key or "call_s") in row] for rows in by_side.values()]
        show = seconds_text if key else "{:.2f}".format
        lines.append((name, *(show(float(np.median(one))) if one else "-" for one in values)))  # type: ignore[arg-type, operator]
    return lines + [(f"S({t})", *(f"{score(rows, t):.2f}" for rows in by_side.values())) for t in (-5, -3, 0)]


def figure(by_side: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Draw S(t) over t, and the share of right graphs over their least speed-up over eager torch."""
    with plt.rc_context(RC):
        made, (scores, shares) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
        for colour, (side, rows) in zip(PALETTE, by_side.items(), strict=False):
            kept = [row for row in rows if row["status"] != "left out"]
            fast = sorted(one for row in kept if row["status"] == "right" and (one := speed_up(row)) is not None)
            scores.plot(TOLERANCES, [score(kept, t) for t in TOLERANCES], color=colour, marker="o", markersize=3, label=side)
            shares.step(fast, np.arange(len(fast), 0, -1) / len(kept), where="pre", color=colour)
        scores.set(xlabel="tolerance t", ylabel="S(t)", title="GraphNet's score", ylim=(0, None))
        shares.set(xlabel="speed-up over eager torch, at least", ylabel="share of graphs", title="Right and so fast", ylim=(0, 1))
        ratio_axis(shares, "x")
        scores.legend()
        save(made, path)
