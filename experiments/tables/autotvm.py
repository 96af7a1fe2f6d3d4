"""Reproduction of AutoTVM (Chen et al., NeurIPS 2018): cost model, objective, batches, uncertainty and transfer.

Run it by `python -m experiments.reproduce table=autotvm`. The searches are those of conf/_autotvm.yaml. The paper prints few
numbers: its results are figures, so that only directions can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from experiments.tables.searchers.studies import Study, draw_speeds, speeds, study_of, with_interval
from experiments.tables.table import Cell, Table
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import write_table

PUBLISHED = {
    "random": ("autotvm", "behind (figure alone)"),
    "genetic": ("autotvm", "behind (figure alone)"),
    "regression": ("autotvm", "rank preferred (figure alone)"),
    "treegru": ("autotvm", "similar quality"),
    "treegru_regression": ("treegru", "rank preferred (figure alone)"),
    "diversity_2": ("autotvm", "off by default (figure alone)"),
    "diversity_4": ("autotvm", "off by default (figure alone)"),
    "mean": ("regression", "-"),
    "ei": ("mean", "no visible gain"),
    "ucb": ("mean", "no visible gain"),
    "greedy_batches": ("autotvm", "5 % random by default (figure alone)"),
    "transfer": ("autotvm", "2 to 10 times fewer trials"),
}
"""Variant of AutoTVM -> (variant that it is compared with, the paper's finding)."""
PANELS = {
    "searches": ("autotvm", "random", "genetic"),
    "cost model and objective": ("autotvm", "regression", "treegru", "treegru_regression"),
    "diversity (lambda)": ("autotvm", "diversity_2", "diversity_4"),
    "uncertainty (regression)": ("mean", "ei", "ucb"),
    "epsilon 0.05 or 0": ("autotvm", "greedy_batches"),
    "transfer": ("autotvm", "transfer"),
}
SOURCES = "operators=[autotvm/C1,autotvm/C2,autotvm/C3,autotvm/C4,autotvm/C5,autotvm/C6]"
"""Convolutions whose trials are the history for transfer. The searches then run on C7 to C12."""
NOTES = (
    "Published: TITAN X, measured, 800 trials (2000 for genetic and random search), 3 repeats, C1 to C12 of ResNet-18, CUDA "
    "template of direct convolution. Its curves are figures whose numbers are not at hand, so only directions compare.",
    "The genetic search here has a population of 16 and begins with walks; the paper's has 100 and begins with random programs.",
    "Faster: trials that the other search needs for what it has after half of its trials, over those that this one needs for "
    "the same (geometric mean; one that never has it counts as having it with the next trial). Published of transfer: 2 to 10 "
    "times, as secondary sources have it.",
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make three tables: studies on recorded tables, studies on the model, and transfer on the model.

    The configuration's `overrides` apply to every study.
    """
    overrides = list(config.overrides or ())
    recorded = study_of("autotvm_recorded", folder, overrides)
    first = ",".join(f"autotvm/C{number}" for number in range(1, 13)[: config.limit])
    model = study_of("autotvm_model", folder, [*([f"operators=[{first}]"] if config.limit is not None else []), *overrides])
    history = folder / "autotvm_history.jsonl"
    _teach(study_of_sources(folder, overrides), history)
    transfer = study_of("autotvm_transfer", folder, [f"strategies.transfer.history={history}", *overrides])
    return [
        _table("AutoTVM's studies on recorded tables of a CPU", recorded, folder),
        _table("AutoTVM's studies on the model of a GPU, C1 to C12", model, folder),
        _table("AutoTVM's transfer on the model of a GPU, C1 to C6 to C7 to C12", transfer, folder),
    ]


def study_of_sources(folder: Path, overrides: list[str]) -> Study:
    """Run the study whose trials become the history for transfer: the search `autotvm` on C1 to C6 with one seed."""
    place = folder / "sources"
    return study_of("autotvm_transfer", place, ["~strategies.transfer", *overrides, SOURCES, "seed=0"])


def _teach(study: Study, path: Path) -> None:
    """Write the successful trials of a study to a file, as records of earlier tasks that a search can learn from."""
    lines = (study.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["seconds"] is not None]
    records = [
        Record(study.summary["device"], row["operator"], row["schedule"], Measurement(Status.OK, (row["seconds"],)), 0.0)
        for row in rows
    ]
    write_table(path, records)


def _table(title: str, study: Study, folder: Path) -> Table:
    names = [name for name in ("autotvm", *PUBLISHED) if name in study.scores.curves]
    rows = [_row(study, name) for name in names]
    columns = (
        "search", *(f"regret after {k}, ours" for k in study.checkpoints), "other search",
        f"difference after {study.checkpoints[-1]}", "faster, ours", "published",
    )  # fmt: skip
    panels = {
        title: {name: speeds(study.scores, name) for name in members if name in study.scores.curves}
        for title, members in PANELS.items()
        if set(members) & set(names)
    }
    shown = {title: curves for title, curves in panels.items() if len(curves) > 1} or panels
    figure = draw_speeds(shown, folder / f"{study.name}.png")
    notes = (study.conditions, *study.verdicts(), *NOTES)
    return Table(title, study.stamp, columns, tuple(rows), notes, (figure,))


def _row(study: Study, name: str) -> tuple[Cell, ...]:
    if name not in PUBLISHED:
        return (name, *study.regrets(name), None, None, None, None)
    beside, published = PUBLISHED[name]
    other: Cell = beside
    if beside not in study.scores.curves:
        return (name, *study.regrets(name), None, None, None, published)
    faster = with_interval(fewer_trials(study.scores.curves[name].regret, study.scores.curves[beside].regret), 1)
    return (name, *study.regrets(name), other, study.difference(name, beside), faster, published)


def fewer_trials(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return how many times fewer trials we need for the result that they have after half of theirs, [tasks, seeds].

    Regrets are [tasks, seeds, trials]. A search that never reaches the result counts as reaching it with its next trial, which
    flatters the search.
    """
    half = theirs.shape[2] // 2
    goal = theirs[..., half - 1 : half]
    reached = [np.where((r <= goal).any(axis=2), (r <= goal).argmax(axis=2), r.shape[2]) + 1.0 for r in (ours, theirs)]
    return np.asarray(reached[1] / reached[0])
