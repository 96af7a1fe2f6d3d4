"""Our speed-up over the fastest peer from alternating times: for each way to call, and over all operators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.benches.fused.process import OURS
from experiments.benches.fused.race import CALLED, INTO
from experiments.comparison.summary import interval, ratio
from experiments.statistics.statistics import bootstrap
from gensor_gym.measure.stats.verdict import verdict

Samples = Mapping[str, Mapping[str, list[float]]]
Row = dict[str, Any]
INNER = "_inner"
FORMS = (CALLED, CALLED + INNER, INTO, INTO + INNER)
"""A call with a new or an existing output; `_inner` forms call torch.compile's compiled graph directly."""
HEADLINE, HEADLINE_INNER = "over_best", "over_best" + INNER


def compared(samples: Samples) -> Row:
    """Times by side and way, our speed-up in each form, and the headline form: an existing output if that was timed."""
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
    """The fastest peer in a form and our speed-up over it; None without peers."""
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
    """A peer's samples in a form, or in the nearest form that it has, since some peers cannot fill an existing output."""
    nearest = (form, form.removesuffix(INNER), form.replace(INTO, CALLED), CALLED)
    return next(ways[name] for name in nearest if name in ways)


def time_of(row: Row, name: str) -> dict[str, float] | None:
    """Time of a library in the headline form of an operator's line, or else as called; None if it was not timed."""
    ways = row["times"].get(name, {})
    found: dict[str, float] | None = ways.get(row["counts"], ways.get(CALLED))
    return found


def overall(rows: Sequence[Row]) -> Row:
    """Geometric means with intervals, least speed-ups and verdict counts in the headline form; resamples operators and rounds."""
    line: Row = {"operators": len(rows)}
    line |= {name: Counter(row[name] for row in rows) for name in ("verdict", "best")}
    for name, suffix in ((HEADLINE, ""), (HEADLINE_INNER, INNER)):
        least = min(rows, key=lambda row: row[name]["median"])
        line[name] = _mean([row["ratios"][row["counts"] + suffix] for row in rows])
        line[f"least_{name}"] = {"operator": least["operator"], **least[name]}
    line["called_over_best"] = _mean([row["ratios"][CALLED] for row in rows])
    return line


def _mean(ratios: Sequence[list[float]]) -> dict[str, float]:
    """Geometric mean over operators of the median ratio over rounds, with its interval."""
    logs = np.log(np.array(ratios))
    low, high = bootstrap(_mean_of_medians, logs)
    return {name: math.exp(value) for name, value in (("median", _mean_of_medians(logs)), ("low", low), ("high", high))}


def _mean_of_medians(scores: np.ndarray) -> float:
    return float(np.mean(np.median(scores, axis=1)))
