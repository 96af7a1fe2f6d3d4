"""Tables like Gensor's figures 11 and 12 (arXiv 2502.11407): shapes that change while the program runs, for one operator.

The operator is the first matrix product of a small BERT's feed-forward layer, with a changing sequence length. A kernel of this
project is for one shape, so that every strategy starts again at every change: its cost is construction or search plus the calls.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from agents.cli.checks import check_whole
from experiments.comparison.retime import TORCH
from experiments.tables.gensor import published
from experiments.tables.gensor.figures import draw_curves
from experiments.tables.gensor.gensor_operators import differ
from experiments.tables.gensor.searches import (
    ANSOR,
    LIVE,
    MODEL,
    Contender,
    Searches,
    Speeds,
    rates,
    speeds_of,
    tiers_of,
    trials_of,
)
from experiments.tables.table import Cell, Table
from gensor_gym import operators

HIDDEN, INNER = 512, 2048
"""Widths of a small BERT's layer (four layers, hidden size 512)."""
ROLLER, MARKOV = "roller", "markov"


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make two tables and a figure for each tier: speeds by length, and the cost of a sequence of changes.

    A tier is the model or measurements. `limit` is the largest number of lengths.
    """
    check_whole(config, 1, "calls")
    tables: list[Table] = []
    for tier in tiers_of(config):
        found = _contenders(tier, trials_of(config, tier))
        tables += _tables(config, Searches(config, folder, tier, alone=True), found, folder)
    return tables


def _contenders(tier: str, trials: int) -> list[Contender]:
    """Return the strategies to compare: those that run their first program, and those that choose one of several by timing."""
    ten = [Contender(f"{name}, 10 timed", min(10, trials), of=name) for name in (MARKOV, ROLLER)] if tier == LIVE else []
    return [*(Contender(name, 1) for name in (MARKOV, "markov_ext", ROLLER)), *ten, Contender(ANSOR[tier], trials)]


def _tables(config: DictConfig, searches: Searches, found: list[Contender], folder: Path) -> list[Table]:
    lengths = published.LENGTHS[: config.limit]
    ops = [operators.gemm(m=length, n=INNER, k=HIDDEN) for length in lengths]
    ended = searches.run(ops, found)
    speeds = speeds_of(searches, ops, found, ROLLER)
    spent = {
        one.name: np.array([np.median([ended[op, one.name, seed].outcome.elapsed_s for seed in searches.seeds]) for op in ops])
        for one in found
    }
    run = {name: np.exp(np.nanmean(np.log(seconds), axis=1)) for name, seconds in speeds.seconds.items()}
    spent |= {TORCH: np.zeros(len(ops))} if TORCH in run else {}
    notes = _conditions(searches, found)
    pictures = (_draw(searches, spent, run, config.calls, folder),) if config.figures else ()
    sequence = f"The sequence: lengths {', '.join(map(str, lengths))} one after the other, {config.calls} calls of each."
    return [
        _speed_table(f"After Gensor's figure 11: speed by length, {searches.device}", searches, speeds, lengths, notes),
        Table(
            f"After Gensor's figure 12: the cost of changing shapes, {searches.device}", searches.stamp(), TOTAL_COLUMNS,
            _total_rows(spent, run, config.calls), (sequence, *notes), pictures,
        ),
    ]  # fmt: skip


def _speed_table(title: str, searches: Searches, speeds: Speeds, lengths: tuple[int, ...], notes: tuple[str, ...]) -> Table:
    ours, base = [name for name in speeds.logs if name != ROLLER], rates(speeds, ROLLER)
    theirs = {name: published.FIGURE_11[name] for name in ("Gensor", "PyTorch", "DietCode")}
    columns = (
        "operator", "roller, TFLOP/s", *(f"{name} over roller" for name in ours),
        *(f"{name} over Roller, published" for name in theirs),
    )  # fmt: skip
    rows = tuple(
        (f"length {length}: {op}", base[i], *(speeds.cell(name, i) for name in ours), *(of[i] for of in theirs.values()))
        for i, (length, op) in enumerate(zip(lengths, speeds.operators, strict=True))
    )
    return Table(title, searches.stamp(), columns, rows, (*_disagreement(speeds, lengths), *notes))


def _disagreement(speeds: Speeds, lengths: tuple[int, ...]) -> tuple[str, ...]:
    """Return a sentence on the lengths at which markov over roller differs from Gensor over Roller; empty if there are none."""
    ours = np.exp(np.nanmean(speeds.logs[MARKOV], axis=1))
    far = [
        f"{length}: {mine:.2f} against {theirs:.2f}"
        for length, mine, theirs in zip(lengths, ours, published.FIGURE_11["Gensor"], strict=False)
        if differ(float(mine), theirs)
    ]
    if not far:
        return ()
    return (
        f"markov over roller against Gensor over Roller by length: {'; '.join(far)}. What may be why: one product of few rows "
        "here, whose best tiles are no multiples that Roller's alignment knows, a network of many operators there; and this "
        "roller takes the first program that its rules give, where the paper's may have timed ten.",
    )


TOTAL_COLUMNS = (
    "strategy", "seconds of a change", "microseconds of a call", "changes, seconds in all", "calls, seconds in all",
    "total, seconds", "calls after which it is ahead of markov", "total over roller's", "published, total over Roller's",
)  # fmt: skip
PAPER = {MARKOV: "Gensor", ROLLER: "Roller", TORCH: "PyTorch"}


def _total_rows(spent: dict[str, np.ndarray], run: dict[str, np.ndarray], calls: int) -> tuple[tuple[Cell, ...], ...]:
    """Return the rows of the table of costs.

    `spent` and `run` are the seconds of a change of the shape and of a call, by strategy, float64 [shapes].
    """
    total = {name: float((spent[name] + calls * run[name]).sum()) for name in spent}
    rows: list[tuple[Cell, ...]] = []
    for name in spent:
        paper = PAPER.get(name)
        rows.append(
            (
                name, float(spent[name].mean()), 1e6 * float(run[name].mean()), float(spent[name].sum()),
                calls * float(run[name].sum()), total[name], ahead(spent, run, name), total[name] / total[ROLLER],
                published.FIGURE_12[paper] / published.FIGURE_12["Roller"] if paper else None,
            )
        )  # fmt: skip
    return tuple(rows)


def ahead(spent: dict[str, np.ndarray], run: dict[str, np.ndarray], name: str) -> str:
    """Return, as text, the number of calls of every shape from (or up to) which a strategy costs less in total than markov."""
    if name == MARKOV:
        return "-"
    dearer, faster = float((spent[name] - spent[MARKOV]).sum()), float((run[MARKOV] - run[name]).sum())
    if dearer <= 0:
        return "always" if faster >= 0 else f"up to {dearer / faster:.3g}"
    return "never" if faster <= 0 else f"{dearer / faster:.3g}"


def _conditions(searches: Searches, found: list[Contender]) -> tuple[str, ...]:
    trials = ", ".join(f"{one.name} {one.trials}" for one in found)
    how = (
        "of a change the wall time of the search alone on the host, nothing compiled or timed; of a call the model's latency"
        if searches.tier == MODEL
        else "of a change the wall time of construction or search with generating, compiling, checking and timing; of a call the "
        "median of interleaved rounds in which all winners and torch ran together; torch needs no change"
    )
    return (
        f"Ours: {searches.device}, float32, gemm(m=length, n={INNER}, k={HIDDEN}) of one sequence, seeds {searches.seeds}; "
        f"trials: {trials}. Seconds {how}.",
        f"Published: figures 11 and 12 of {published.SOURCE} Figure 11: a small BERT, batch not stated, whole network; figure "
        "12: MobileNetV2 in four stages of 2000 inferences of batch 128, optimised anew each time the channels change, seconds "
        "in all. An inference of a network at batch 128 takes far longer than a call of one operator, so there a change weighs "
        "less: the calls after which one is ahead compare, the totals hang on the number of calls.",
    )


def _draw(searches: Searches, spent: dict[str, np.ndarray], run: dict[str, np.ndarray], calls: int, folder: Path) -> str:
    grid = np.geomspace(1, max(1e6, 10.0 * calls), 25)
    curves = {name: (grid, spent[name].sum() + grid * run[name].sum()) for name in spent}
    path = folder / f"gensor_changing_shapes_{searches.hardware.name}.png"
    labels = ("calls of every shape", "construction or search, and calls")
    return draw_curves([(f"ours, {searches.device}", curves)], labels, path, ("calls", "seconds"))
