"""Results of a contest's rows: times of the winners, speed-ups over torch, and paired comparisons with the first strategy.

`conclusions` concludes about strategies; `gensor_gym.measure.stats.verdict` concludes about two kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.device.work.trials import summary_of
from experiments.statistics import against, geometric_mean
from gensor_gym.measure.stats.intervals import ratio_interval

TORCH = "torch"
RESAMPLES = 2000
"""Resamples of the bootstrap over operators."""

Row = Mapping[str, Any]
Samples = Mapping[str, list[float]]
"""Seconds of every round, by label of the search and for torch."""


def standings(rows: Sequence[Row], strategies: Sequence[str]) -> dict[str, object]:
    """Medians by operator and search, geometric means over torch, `over_first`, and reasons for missing rows."""
    timed = [row for row in rows if row["kind"] == "together" and "samples" in row]
    together: dict[str, Samples] = {row["operator"]: row["samples"] for row in timed}
    searches = [row for row in rows if row["kind"] == "search"]
    label_of = {row["label"]: row["strategy"] for row in searches}
    over: dict[str, list[float]] = {name: [] for name in strategies}
    for samples in together.values():
        for label, values in samples.items():
            if label != TORCH and TORCH in samples:
                over[label_of[label]].append(ratio_interval(samples[TORCH], values)[0])
    cut = sorted({f"{row['label']}: {row['operator']}" for row in searches if row.get("cut")})
    return {
        "trials": sum(row["kind"] == "trial" for row in rows),
        "seconds": {op: {label: summary_of(v) for label, v in samples.items()} for op, samples in together.items()},
        "geomean_over_torch": {name: geometric_mean(ratios) for name, ratios in over.items() if ratios},
        "winners_of_the_means": {name: len(ratios) for name, ratios in over.items() if ratios},
        "over_first": over_first(together, searches, strategies),
        "not_run": {row["strategy"]: row["error"] for row in searches if "error" in row},
        "cut_short": cut,
    }


def over_first(together: Mapping[str, Samples], searches: Sequence[Row], strategies: Sequence[str]) -> dict[str, object]:
    """Times of every strategy's winners over the first's, geometric mean over operators; empty for fewer than two operators.

    {"reference", "operators", "pairs": over all operators, "strategies": {name: ratio, low, high, p_holm}}. An operator counts
    with the seeds for which every strategy with any result has a winner and no search was cut. Its score is the mean over these
    seeds of log seconds, relative to the mean of the round. Intervals are 95 percent of a bootstrap over operators: they do not
    cover another training seed of a policy. p values are of a sign-flip test, with Holm's correction.
    """
    usable = {(row["operator"], row["label"]): row for row in searches if row.get("schedule") and not row.get("cut")}
    names = [name for name in strategies if any(row["strategy"] == name for row in usable.values())]
    whole = {op: pairs for op, samples in together.items() if (pairs := _pairs(op, samples, usable, names))}
    if strategies[0] not in names or len(names) < 2 or len(whole) < 2:
        return {}
    scores = {name: np.array([[[np.mean([pair[name] for pair in pairs])]] for pairs in whole.values()]) for name in names}
    first = scores.pop(names[0])
    lines = {name: found[0] for name, found in against(scores, first, RESAMPLES).items()}
    return {
        "reference": names[0], "operators": len(whole), "pairs": sum(map(len, whole.values())),
        "strategies": {
            name: {
                "ratio": float(np.exp(line["mean"])), "low": float(np.exp(line["low"])), "high": float(np.exp(line["high"])),
                "p_holm": line["p_holm"],
            }
            for name, line in lines.items()
        },
    }  # fmt: skip


def _pairs(op: str, samples: Samples, usable: Mapping[tuple[str, str], Row], names: Sequence[str]) -> list[dict[str, float]]:
    """For every seed with a winner of each strategy: strategy -> its relative log seconds."""
    found: dict[int, dict[str, float]] = {}
    for label, log in _relative(samples).items():
        if (row := usable.get((op, label))) is not None:
            found.setdefault(row["seed"], {})[row["strategy"]] = log
    return [by_name for by_name in found.values() if set(by_name) == set(names)]


def _relative(samples: Samples) -> dict[str, float]:
    """Label -> median over rounds of the winner's log seconds minus the mean log seconds of all winners in the round."""
    labels = [label for label in samples if label != TORCH]
    logs = np.log(np.array([samples[label] for label in labels]))
    return dict(zip(labels, np.median(logs - logs.mean(axis=0), axis=1).tolist(), strict=True))


def conclusions(over_first: Mapping[str, Any]) -> list[str]:
    """A sentence for every strategy compared with the first, from `over_first`; or one sentence if it is empty."""
    if not over_first:
        return ["Nothing can be said: fewer than two operators have winners of all strategies that were timed together."]
    return [_conclusion(name, line, over_first["reference"]) for name, line in over_first["strategies"].items()]


def _conclusion(name: str, line: Mapping[str, float], reference: str) -> str:
    """A sentence about one strategy. The interval decides, and a difference counts only if the sign-flip test agrees."""
    interval = f"{line['ratio']:.3f} [{line['low']:.3f}, {line['high']:.3f}]"
    said = f"`{name}` takes {interval} of `{reference}`'s time"
    if line["low"] <= 1.0 <= line["high"]:
        return f"{said}: not told apart."
    faster = f"{100 * abs(line['ratio'] - 1.0):.1f} % {'faster' if line['ratio'] < 1.0 else 'slower'}"
    if line["p_holm"] > 0.05:
        return f"{said}: {faster} by the interval, not by the sign-flip test (p {line['p_holm']:.2g} after Holm): not told apart."
    return f"{said}: {faster} (p {line['p_holm']:.2g} after Holm)."
