"""Learn a correction of the model from measurements: `python -m experiments learn_correction measured=WHAT output=FOLDER`.

WHAT is a machine of Measured v1, a file of `gensor collect`, or measured.jsonl of `gensor fine_tune`, with programs of the train
part on one machine. The card compares the correction's ranking of programs with the model's on held-out operators (groups of
operators are held out in turn).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.hybrids.correction import Correction, features_of
from experiments.commands.checks import check_truths, check_whole
from experiments.commands.command import command
from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import meant, read_objects
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records import measured

FOLDS = 5
LEAST = 4
"""Least number of kernels of an operator for which rankings are compared."""


def learn(
    rows: list[dict[str, Any]], hardware: Hardware | str, space: str, console: Console, seed: int = 0, validate: bool = True
) -> tuple[Correction, dict[str, Any]]:
    """Fit a correction; return (correction, card), the card with `validated` if asked for.

    ValueError for operators outside the train part, or too few measurements.
    """
    ran, hw = [row for row in rows if row["seconds"] is not None], machines.get(hardware)
    texts = sorted({row["operator"] for row in ran})
    if others := sorted({operators.part_of(operators.parse(text)) for text in texts} - {"train"}):
        raise ValueError(f"measurements of the parts {others}: a correction is learned on train alone")
    if len(texts) < FOLDS:
        raise ValueError(f"{len(ran)} kernels of {len(texts)} operators ran: expected at least {FOLDS} operators")
    features, times, groups, model = [], [], [], []
    for number, text in enumerate(texts):
        graph = ConstructionGraph(text, hw, space)
        mine = [row for row in ran if row["operator"] == text]
        rows_of = graph.stack([Schedule.parse(row["schedule"]) for row in mine])
        predicted = graph.latencies(rows_of)
        if not np.isfinite(predicted).all():
            raise ValueError(
                f"{int((~np.isfinite(predicted)).sum())} kernels of {text} do not fit {graph.hardware.name} in space {space}: "
                "expected kernels measured on this machine with as many threads (GENSOR_GYM_THREADS), in this space"
            )
        features.append(features_of(graph, rows_of))
        model.append(np.log(predicted))
        times.append(np.log([row["seconds"] for row in mine]))
        groups.append(np.full(len(mine), number))
    data = [np.concatenate(parts) for parts in (features, times, groups, model)]
    held_out = validated(*data) if validate else {}
    console.print(held_out, highlight=False)
    card = {"operators": texts, "kernels": len(ran), "kind": hw.kind, "machine": hw.name, "space": space, "seed": seed}
    return Correction.fit(data[0], data[1], data[2], seed), {**card, **held_out}


def validated(features: np.ndarray, times: np.ndarray, groups: np.ndarray, model: np.ndarray) -> dict[str, float]:
    """Cross-validated ranking of programs of held-out operators, by the model alone and corrected.

    `rank` is the rank correlation with measured times; `first` and `first4` are log(fastest of the first choices / fastest of
    all). Values are means over operators with at least LEAST programs.
    """
    corrected = np.empty(len(times))
    for fold in range(FOLDS):
        out = groups % FOLDS == fold
        kept = np.unique(groups[~out], return_inverse=True)[1]
        corrected[out] = model[out] + Correction.fit(features[~out], times[~out], kept).log_ratio(features[out])
    found: dict[str, list[float]] = defaultdict(list)
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        if len(mine) < LEAST:
            continue
        own = times[mine]
        for name, scores in (("model", model[mine]), ("corrected", corrected[mine])):
            ranked = own[np.argsort(scores, kind="stable")]
            found[f"rank_{name}"].append(rank_correlation(scores, own))
            for key, k in (("first", 1), ("first4", 4)):
                found[f"{key}_{name}"].append(float(ranked[:k].min() - own.min()))
    return {name: round(float(np.mean(values)), 4) for name, values in found.items()}


def rank_correlation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Spearman's rank correlation, with ties ranked in the given order; 0 if a variable is constant."""
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return 0.0
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (ours, theirs)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _read(what: str, hw: Hardware) -> tuple[list[dict[str, Any]], Hardware]:
    """(rows with operator, schedule and seconds; their machine). The machine is `hw` if the file does not name one."""
    if not what.endswith(".parquet") and what not in measured.names():
        return read_objects(what), hw
    table = measured.load(what, "train")
    table = table[table.status == Status.OK.value]
    rows = table[["operator", "schedule", "quiet"]].rename(columns={"quiet": "seconds"}).astype({"operator": str})
    return rows.to_dict("records"), measured.here(what)


@command("learn_correction")
def main(config: DictConfig, console: Console) -> None:
    """Learn a correction with the settings of the command line, and save it with its card."""
    check_whole(config, 0, "seed")
    check_truths(config, "validate")
    lines, hw = _read(str(config.measured), machines.get(config.env.hardware))
    with meant(config.measured, "file of measurements, such as gensor fine_tune writes"):
        correction, card = learn(lines, hw, config.env.space, console, config.seed, config.validate)
    correction.save(Path(config.output), {**card, "measured": str(config.measured)})
    console.print(f"correction and card in {config.output}", highlight=False, markup=False)
