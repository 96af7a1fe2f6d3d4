"""Gensor (arXiv 2502.11407), Table VI: what the graph and virtual threads add to Roller's tree.

One table is predicted for an RTX 4090, without timing; a counterpart is measured on the present hardware. A CPU has no virtual
threads, so its steps of the ablation are Roller, Gensor's traverser in space `tree` (no inverse primitives), and the traverser.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from experiments.tables.gensor import published
from experiments.tables.gensor.gensor_gemm import profile_of
from experiments.tables.gensor.published import HOST, NAMED, RTX_4090, stand_in
from experiments.tables.gensor.searches import LIVE, MODEL, Contender, Ended, Found, Program, Searches, mean_text, tiers_of
from experiments.tables.table import Cell, Table
from gensor_gym.measure.stats.intervals import LEVEL
from gensor_gym.operators.types import Operator

TOP = 10
"""Number of programs that each strategy measures; its first program is also reported alone."""
ROLLER, TREE, PLAIN, FULL = "roller", "markov in the tree", "markov without virtual threads", "markov"
SPACES = {TREE: "tree", PLAIN: "gensor_no_vthread"}


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make a table predicted by the model and a table measured on the present hardware.

    `limit` is the largest number of shapes of each class of operators.
    """
    tiers, tables = tiers_of(config), []
    if MODEL in tiers:
        tables.append(_predicted(config, folder))
    if LIVE in tiers:
        tables.append(_measured(config, folder))
    return tables


def _contenders(names: Sequence[str], trials: int) -> list[Contender]:
    """Return the strategies to compare: Roller, or the traverser in the space that belongs to the step of the ablation."""
    return [
        Contender(ROLLER, trials)
        if name == ROLLER
        else Contender(name, trials, of="markov", hyperparameters={"space": SPACES[name]} if name in SPACES else {})
        for name in names
    ]


def _predicted(config: DictConfig, folder: Path) -> Table:
    searches = Searches(config, folder, MODEL)
    steps, seeds = (ROLLER, PLAIN, FULL), searches.seeds
    classes = stand_in(RTX_4090, config.limit)
    ended = searches.run([op for ops in classes.values() for op in ops], _contenders(steps, TOP))
    rows: list[tuple[Cell, ...]] = []
    for name, ops in classes.items():
        theirs = published.TABLE_VI[name]
        values = {step: _profiled([(op, ended[op, step, seed]) for op in ops for seed in seeds]) for step in steps}
        rates = [float(np.exp(np.mean(np.log(values[step][:, 0])))) for step in steps]
        shares = [values[step][:, 1:].mean(axis=0) for step in steps]
        rows.append(
            (
                f"{name} ({len(ops)} shapes)", _arrow(rates), _arrow([step[0] for step in theirs]),
                rates[2] / rates[0], theirs[2][0] / theirs[0][0], rates[2] / rates[1], theirs[2][0] / theirs[1][0],
                _arrow([s[0] for s in shares]), _arrow([step[1] for step in theirs]),
                _arrow([s[1] for s in shares]), _arrow([step[2] for step in theirs]),
            )
        )  # fmt: skip
    columns = (
        "class", "TFLOP/s, ours", "published", "markov over roller, ours", "Gensor over Roller, published",
        "markov over no vthread, ours", "Gensor over no vthread, published", "occupancy %, ours", "published",
        "memory busy %, ours", "published",
    )  # fmt: skip
    notes = (
        f"Ours: the model of an RTX 4090, seeds {seeds}, the best by the model of {TOP} programs of roller, of markov without "
        "virtual threads, of markov (in this order in every cell with arrows); rates are geometric means, shares means.",
        f"Published: one operator of each class, Table VI of {published.SOURCE} Rates of different operators do not compare.",
        NAMED, *_directions(rows),
    )  # fmt: skip
    return Table("Gensor, Table VI, on the model of an RTX 4090", searches.stamp(), columns, tuple(rows), notes)


def _profiled(found: list[tuple[Operator, Found]]) -> np.ndarray:
    """Return (TFLOP/s, occupancy in percent, memory busy in percent) of the program of each search, float64 [N, 3]."""
    profiles = ((op, profile_of(op, ended)) for op, ended in found)
    return np.array([(op.flops / of.seconds / 1e12, 100 * of.occupancy, 100 * of.memory) for op, of in profiles])


def _directions(rows: list[tuple[Cell, ...]]) -> tuple[str, ...]:
    """Return sentences on the classes in which a step of the ablation gains much more or less than in the paper.

    Steps are Roller, Gensor without virtual threads, and Gensor.
    """
    said = []
    for row in rows:
        name = str(row[0]).partition(" ")[0]
        for of, pair in (("markov over roller", row[3:5]), ("virtual threads", row[5:7])):
            ours, theirs = (float(value) for value in pair if isinstance(value, float))
            if ours < 0.98 or max(ours, theirs) > 1.25 * min(ours, theirs):
                said.append(f"{name}, {of}: {ours:.2f} by the model, {theirs:.2f} published.")
    if said:
        said.append(
            "What may be why: other shapes; and the programs here have vector loads, padded layouts and unrolling set by rule, "
            "so that virtual threads, which space out a thread's accesses, have fewer conflicts left to remove."
        )
    return tuple(said)


def _measured(config: DictConfig, folder: Path) -> Table:
    searches = Searches(config, folder, LIVE)
    steps = (ROLLER, TREE, FULL) if searches.hardware.kind == "cpu" else (ROLLER, TREE, PLAIN, FULL)
    trials = config.trials or TOP
    classes = stand_in(HOST, config.limit)
    ops = [op for some in classes.values() for op in some]
    ended = searches.run(ops, _contenders(steps, trials))
    logs = {op: _timed(searches, op, steps, ended) for op in ops}
    rows = tuple(_measured_row(name, some, logs, steps) for name, some in [*classes.items(), ("all", ops)])
    over = [(step, FULL) for step in steps[:-1]]
    columns = (
        "class", *(f"{b} over {a}, first program" for a, b in over), *(f"{b} over {a}, best of {trials}" for a, b in over),
        *(f"{step}, best of {trials} over its first" for step in steps), "Gensor over Roller, published",
        "Gensor over no vthread, published",
    )  # fmt: skip
    notes = (
        f"Ours: {searches.device}, float32, {searches.hardware.units} threads, seeds {searches.seeds}; first programs and the "
        f"fastest of {trials} of all steps timed together in {config.rounds} interleaved rounds. "
        f"Ratios of speeds, geometric means; in brackets the {LEVEL} bootstrap over operators and seeds (of a class with "
        "few operators it is narrower than it should be).",
        f"Published: RTX 4090, one operator of each class, Table VI of {published.SOURCE} How many programs were measured is "
        "not stated.",
        "A CPU has no virtual threads. Its like of the step between is the traverser in space `tree`, the same walk without "
        "inverse primitives: what it loses is what moving both ways is worth. Expected before the run: roller slowest, markov "
        "fastest, and ten programs measured to bring roller nearer.",
        NAMED, *_surprises(logs, steps),
    )  # fmt: skip
    return Table(f"Gensor, Table VI, its like on {searches.device}", searches.stamp(), columns, rows, notes)


def _timed(searches: Searches, op: Operator, steps: Sequence[str], ended: Ended) -> dict[str, np.ndarray]:
    """Time the first and the best program of each step's searches together; return log seconds [seeds] by label.

    Labels are the step followed by `/first` or `/best`; a missing time is NaN.
    """
    winners: dict[str, Program | None] = {}
    for step in steps:
        for seed in searches.seeds:
            found = ended[op, step, seed]
            winners |= {f"{step}/best/{seed}": found.best, f"{step}/first/{seed}": found.first}
    samples = searches.retimed(op, winners).samples

    def log(label: str) -> float:
        return float(np.log(np.median(samples[label]))) if label in samples else float("nan")

    labels = [f"{step}/{which}" for step in steps for which in ("first", "best")]
    return {label: np.array([log(f"{label}/{seed}") for seed in searches.seeds]) for label in labels}


def _measured_row(
    name: str, ops: list[Operator], logs: dict[Operator, dict[str, np.ndarray]], steps: Sequence[str]
) -> tuple[Cell, ...]:
    def over(slow: str, fast: str) -> str:
        return mean_text(_differences(ops, logs, slow, fast))

    theirs = published.TABLE_VI.get(name)
    paper = (theirs[2][0] / theirs[0][0], theirs[2][0] / theirs[1][0]) if theirs else (None, None)
    return (
        f"{name} ({len(ops)} shapes)", *(over(f"{step}/first", f"{FULL}/first") for step in steps[:-1]),
        *(over(f"{step}/best", f"{FULL}/best") for step in steps[:-1]),
        *(over(f"{step}/first", f"{step}/best") for step in steps), *paper,
    )  # fmt: skip


def _differences(ops: list[Operator], logs: dict[Operator, dict[str, np.ndarray]], slow: str, fast: str) -> np.ndarray:
    """Return log seconds of `slow` minus those of `fast`, [operators, seeds], for operators on which both have all times."""
    values = np.array([logs[op][slow] - logs[op][fast] for op in ops])
    return values[np.isfinite(values).all(axis=1)]


def _surprises(logs: dict[Operator, dict[str, np.ndarray]], steps: Sequence[str]) -> tuple[str, ...]:
    """Return sentences on the steps that are faster than the traverser on average, which was not expected."""
    said = []
    for step in steps[:-1]:
        for which in ("first", "best"):
            values = _differences(list(logs), logs, f"{step}/{which}", f"{FULL}/{which}")
            if values.size and values.mean() < 0:
                said.append(f"Not as expected: {step} is faster than markov by {np.exp(-values.mean()):.2f} ({which} program).")
    return tuple(said)


def _arrow(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.3g}" for value in values)
