"""Learn a correction of the model from measurements: `python -m experiments learn_correction measured=WHAT output=FOLDER`.

WHAT is a machine of Measured v1, a file of `gensor collect`, or measured.jsonl of `gensor fine_tune`, with programs of the train
part on one machine. WHAT may be a list of these. The card compares how correction and model rank programs, on the operators of
the last item. These operators are held out in groups, one group after another and on all machines together. For a machine of
Measured v1, the card also compares the rankings on the operators of the other parts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, ListConfig
from rich.console import Console

from agents.cli.checks import check_positive, check_truths, check_whole
from agents.cli.command import command
from agents.hybrids.correction import Correction, features_of
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
"""Smallest number of an operator's kernels for which its ranking is evaluated."""
FIRSTS = {"first": 1, "first4": 4}
"""Name of a score of rankings -> number of first choices whose best time counts."""


@dataclass(frozen=True)
class Observed:
    """Successful measured programs of one machine, with features and times, in the order of their operators."""

    hardware: Hardware
    operators: list[str]
    """Texts of the distinct operators, sorted."""
    features: np.ndarray
    """Features of the programs (`agents.hybrids.program_features`), float32 [B, F]."""
    times: np.ndarray
    """Logarithms of measured seconds, float64 [B]."""
    model: np.ndarray
    """Logarithms of the model's seconds, float64 [B]."""
    groups: np.ndarray
    """Index of each program's operator, int64 [B]."""
    programs: np.ndarray
    """The measured programs, encoded as rows int32 [B, ROW]."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], hardware: Hardware | str, space: str, to_learn: bool = True) -> Observed:
        """Compute features and times from rows with operator, schedule and seconds (null for programs that failed).

        ValueError for operators outside the train part unless `to_learn` is false, for too few measurements, and for programs
        that do not fit the machine.
        """
        ran, hw = [row for row in rows if row["seconds"] is not None], machines.get(hardware)
        texts = sorted({row["operator"] for row in ran})
        others = sorted({operators.part_of(operators.parse(text)) for text in texts} - {"train"})
        if to_learn and others:
            raise ValueError(f"measurements of the parts {others}: a correction is learned on train alone")
        if len(texts) < FOLDS:
            raise ValueError(f"{len(ran)} kernels of {len(texts)} operators ran: expected at least {FOLDS} operators")
        by_operator = defaultdict[str, list[Mapping[str, Any]]](list)
        for row in ran:
            by_operator[row["operator"]].append(row)
        parts = [_observed(text, by_operator[text], hw, space) for text in texts]
        groups = np.repeat(np.arange(len(texts)), [len(times) for _, times, _, _ in parts])
        features, times, model, programs = (np.concatenate(values) for values in zip(*parts, strict=True))
        return cls(hw, texts, features, times, model, groups, programs)

    @classmethod
    def of_table(cls, table: Any, hardware: Hardware, space: str, to_learn: bool = True) -> Observed:
        """Compute features and times of the successful programs in a table of Measured v1.

        `gensor_gym.measure.records.measured` describes the columns.
        """
        ran = table[table.status == Status.OK.value][["operator", "schedule", "quiet"]]
        rows = ran.rename(columns={"quiet": "seconds"}).astype({"operator": str})
        return cls.of(rows.to_dict("records"), hardware, space, to_learn)


def _observed(text: str, rows: Sequence[Mapping[str, Any]], hw: Hardware, space: str) -> tuple[np.ndarray, ...]:
    """Return (features, log measured seconds, log model seconds, encoded programs) of one operator's programs."""
    graph = ConstructionGraph(text, hw, space)
    programs = graph.stack([Schedule.parse(row["schedule"]) for row in rows])
    predicted = graph.latencies(programs)
    if not np.isfinite(predicted).all():
        raise ValueError(
            f"{int((~np.isfinite(predicted)).sum())} kernels of {text} do not fit {graph.hardware.name} in space {space}: "
            "expected kernels measured on this machine with as many threads (GENSOR_GYM_THREADS), in this space"
        )
    return features_of(graph, programs), np.log([row["seconds"] for row in rows]), np.log(predicted), programs


def learn(
    observed: Sequence[Observed], space: str, seed: int = 0, validate: bool = True, last: float = 1.0
) -> tuple[Correction, dict[str, Any]]:
    """Fit a correction to the programs of all machines; return (correction, card).

    With `validate` the card has the results of `validated` for the last machine. `last` is the weight of the last machine's
    programs, whose operators the card names. Programs of other machines weigh 1.
    """
    here = observed[-1]
    held_out = validated(observed, seed, last) if validate else {}
    card = {"operators": here.operators, "kernels": len(here.times), "kind": here.hardware.kind, "machine": here.hardware.name}
    return fitted(observed, seed, last), {**card, "machines": len(observed), "space": space, "seed": seed, **held_out}


def fitted(observed: Sequence[Observed], seed: int, last: float, without: Collection[str] = ()) -> Correction:
    """Fit a correction to the programs of all machines, except those of the operators `without`."""
    kept = [np.array([text not in without for text in one.operators])[one.groups] for one in observed]
    pairs = list(zip(observed, kept, strict=True))
    number, groups = 0, []
    for one, mask in pairs:
        groups.append(one.groups[mask] + number)
        number += len(one.operators)
    weights = [np.full(mask.sum(), last if one is observed[-1] else 1.0) for one, mask in pairs]
    features, times = ([getattr(one, name)[mask] for one, mask in pairs] for name in ("features", "times"))
    dense = np.unique(np.concatenate(groups), return_inverse=True)[1]
    return Correction.fit(np.concatenate(features), np.concatenate(times), dense, seed, np.concatenate(weights))


def validated(observed: Sequence[Observed], seed: int = 0, last: float = 1.0) -> dict[str, float]:
    """Evaluate how well held-out operators of the last machine are ranked, by the model alone and corrected.

    Return the results of `ranking` by name.
    """
    here = observed[-1]
    corrected = np.empty(len(here.times))
    for fold in range(FOLDS):
        out = here.groups % FOLDS == fold
        names = here.operators[fold::FOLDS]
        corrected[out] = here.model[out] + fitted(observed, seed, last, names).log_ratio(here.features[out])
    scores = {"model": here.model, "corrected": corrected}
    return {f"{key}_{name}": value for name, of in scores.items() for key, value in ranking(of, here.times, here.groups).items()}


def elsewhere(correction: Correction, machine: str, space: str) -> dict[str, float]:
    """Evaluate how well a machine's operators outside the train part are ranked, by the model alone and corrected.

    Return the number of operators and the results of `ranking` by name.
    """
    table = measured.load(machine)
    here = Observed.of_table(table[table.part != "train"], measured.here(machine), space, to_learn=False)
    scores = {"model": here.model, "corrected": here.model + correction.log_ratio(here.features)}
    found = {f"{key}_{name}": value for name, of in scores.items() for key, value in ranking(of, here.times, here.groups).items()}
    return {"operators": len(here.operators), **found}


def ranking(scores: np.ndarray, times: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """Return the mean quality of the rankings by `scores`: means of `rankings` over operators."""
    return {name: round(float(np.mean(values)), 4) for name, values in rankings(scores, times, groups).items()}


def rankings(
    scores: np.ndarray, times: np.ndarray, groups: np.ndarray, firsts: Mapping[str, int] = FIRSTS
) -> dict[str, list[float]]:
    """Return the quality of the ranking by `scores`, lowest first, for each operator with at least four programs (`LEAST`).

    `rank` is the rank correlation with `times`, logarithms of measured seconds. Each name of `firsts` has the smallest logarithm
    of a time among that many first choices, minus the smallest of all.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        if len(mine) < LEAST:
            continue
        own = times[mine]
        ranked = own[np.argsort(scores[mine], kind="stable")]
        found["rank"].append(rank_correlation(scores[mine], own))
        for name, k in firsts.items():
            found[name].append(float(ranked[:k].min() - own.min()))
    return found


def rank_correlation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return Spearman's rank correlation, with ties ranked in the given order; 0 if a variable is constant."""
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return 0.0
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (ours, theirs)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def observations(what: str, hw: Hardware, space: str) -> Observed:
    """Read the measurements of a file, or the train part of a machine of Measured v1. The machine is `hw` if a file names none.

    ValueError if `what` is neither a file nor a machine of Measured v1.
    """
    if what not in measured.names() and not Path(what).is_file():
        raise ValueError(f"measured {what!r}: expected a file, or a machine of Measured v1: {', '.join(measured.names())}")
    if not what.endswith(".parquet") and what not in measured.names():
        return Observed.of(read_objects(what), hw, space)
    return Observed.of_table(measured.load(what, "train"), measured.here(what), space)


def regrets(card: Mapping[str, Any], of: str = "operators left out") -> list[str]:
    """Say in sentences how much slower than the best the first choices are, from the numbers of a card.

    `of` names the operators. The list is empty if the card has no such numbers.
    """
    names = {"first": "the first choice", "first4": "the best of the first four"}
    return [
        f"On {of}, {name} takes {math.expm1(card[f'{key}_model']):.1%} longer than the best program by the model, "
        f"{math.expm1(card[f'{key}_corrected']):.1%} by the corrected model."
        for key, name in names.items() if f"{key}_model" in card
    ]  # fmt: skip


@command("learn_correction")
def main(config: DictConfig, console: Console) -> None:
    """Learn a correction with the settings of the command line, and save it with its card."""
    check_whole(config, 0, "seed")
    check_truths(config, "validate")
    check_positive(config, "last")
    hw, space = machines.get(config.env.hardware), config.env.space
    files = list(config.measured) if isinstance(config.measured, ListConfig) else [config.measured]
    if not files:
        raise ValueError("measured is empty; expected a machine of Measured v1, a file, or a list of these")
    with meant(config.measured, "file of measurements, such as gensor fine_tune writes"):
        observed = [observations(str(one), hw, space) for one in files]
        correction, card = learn(observed, space, config.seed, config.validate, config.last)
    last = str(files[-1])
    others = elsewhere(correction, last, space) if config.validate and last in measured.names() else {}
    more = {"elsewhere": others} if others else {}
    correction.save(Path(config.output), {**card, **more, "measured": [str(one) for one in files]})
    said = regrets(card)
    said += regrets(others, f"the {others['operators']} of other parts") if others else []
    console.print("\n".join(said), highlight=False, markup=False)
    console.print(f"correction and card in {config.output}", highlight=False, markup=False)
