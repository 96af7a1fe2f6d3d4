"""Gensor (arXiv 2502.11407), figures 6 and 7: operators compared with Roller, Ansor and the vendor's library.

Some tables use the models of an RTX 4090 and an Orin Nano, without timing. The others use the present hardware, where the winners
of all strategies are timed again together.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from experiments.comparison.retime import TORCH
from experiments.tables.gensor import published
from experiments.tables.gensor.figures import draw_operators
from experiments.tables.gensor.published import HOST, NAMED, ORIN, RTX_4090, stand_in
from experiments.tables.gensor.searches import (
    ANSOR,
    LIVE,
    MODEL,
    Contender,
    Searches,
    Speeds,
    mean_text,
    rates,
    speeds_of,
    tiers_of,
    trials_of,
)
from experiments.tables.table import Cell, Table
from gensor_gym.measure.stats.intervals import LEVEL

FIGURES = (
    ("rtx4090", "figure 6", RTX_4090, published.FIGURE_6),
    ("orin_nano", "figure 7", ORIN, published.FIGURE_7),
)
TOP = 10
"""Number of programs that each constructing strategy measures, which is as many as Roller measures."""
FAR = 1.25
"""Factor by which two ratios may differ; they also disagree if they are on different sides of 1 and differ by over 1.05."""


Figure = dict[str, tuple[float, float, float]]
"""Operator of a figure of the paper -> published speeds of (library, Roller, Gensor) relative to Ansor's."""


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make two tables and a plot for each of the paper's figures, and for this machine.

    The setting `limit` is the largest number of shapes of each class of operators.
    """
    tables: list[Table] = []
    if MODEL in tiers_of(config):
        for hardware, figure, names, paper in FIGURES:
            tables += _compare(config, Searches(config, folder, MODEL, hardware), figure, names, paper, folder)
    if LIVE in tiers_of(config):
        tables += _compare(config, Searches(config, folder, LIVE), "figure 6", HOST, published.FIGURE_6, folder)
    return tables


def _contenders(config: DictConfig, tier: str) -> list[Contender]:
    """Return the strategies to compare, Ansor last; those that construct measure their first ten programs, also on the model."""
    ansor = Contender(ANSOR[tier], trials_of(config, tier))
    trials = min(ansor.trials, TOP)
    ours = [Contender(name, trials) for name in ("markov", "markov_ext", "roller")]
    more = [Contender(f"{name}, {ansor.trials} trials", ansor.trials, of=name) for name in ("markov", "markov_ext")]
    return [*ours, *(more if tier == LIVE and ansor.trials > trials else []), ansor]


def _compare(
    config: DictConfig, searches: Searches, figure: str, names: tuple[str, ...], paper: Figure, folder: Path
) -> list[Table]:
    classes, found = stand_in(names, config.limit), _contenders(config, searches.tier)
    ansor = found[-1].name
    speeds = speeds_of(searches, [op for some in classes.values() for op in some], found, ansor)
    stamp = searches.stamp("rtx4090" if figure == "figure 6" else "orin_nano")
    notes = (_conditions(searches, found, config.rounds), NAMED, f"Published: {figure} of {published.SOURCE}")
    path = folder / f"gensor_operators_{searches.hardware.name}.png"
    pictures = (draw_operators(speeds, ansor, paper, figure, path),) if config.figures else ()
    title = f"Gensor, {figure}, on {searches.device}"
    first = Table(
        f"{title}: classes", stamp, CLASS_COLUMNS, tuple(_class_rows(speeds, list(classes), paper)),
        (*_disagreements(speeds, list(classes), paper), *notes), pictures,
    )  # fmt: skip
    others = [name for name in speeds.logs if name != ansor]
    columns = ("operator", *(f"{name}, TFLOP/s" for name in speeds.logs), *(f"{name} over {ansor}" for name in others))
    flops = {name: rates(speeds, name) for name in speeds.logs}
    rows = tuple(
        (str(op), *(of[i] for of in flops.values()), *(speeds.cell(name, i) for name in others))
        for i, op in enumerate(speeds.operators)
    )
    return [first, Table(f"{title}: operators", stamp, columns, rows, notes)]


CLASS_COLUMNS = (
    "class", "markov over roller, ours", "Gensor over Roller, published", "markov over ansor, ours",
    "Gensor over Ansor, published", "roller over ansor, ours", "Roller over Ansor, published", "markov_ext over ansor, ours",
    "torch over ansor, ours", "vendor's library over Ansor, published",
)  # fmt: skip


def _class_rows(speeds: Speeds, classes: list[str], paper: Figure) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for name in (*classes, None):
        if not any(name is None or published.CLASSES[key[0]] == name for key in paper):
            continue
        library, roller, gensor, over = published.class_means(paper, name)
        count = int(speeds.complete(name).sum())
        over_ansor = {of: mean_text(speeds.class_logs(of, name)) for of in speeds.logs}
        rows.append(
            (
                f"{name or 'all'} ({count} shapes)", mean_text(_over_roller(speeds, name)), over,
                over_ansor["markov"], gensor, over_ansor["roller"], roller,
                over_ansor["markov_ext"], over_ansor.get(TORCH), library,
            )
        )  # fmt: skip
    return rows


def _over_roller(speeds: Speeds, of: str | None) -> np.ndarray:
    return speeds.class_logs("markov", of) - speeds.class_logs("roller", of)


def _conditions(searches: Searches, found: list[Contender], rounds: int) -> str:
    trials = ", ".join(f"{one.name} {one.trials}" for one in found)
    if searches.tier == MODEL:
        return (
            f"Ours: latency of the {searches.device} for the program that a strategy ends with; seeds {searches.seeds}; trials "
            f"(answers of the model): {trials}. `markov` ranks by this very model and sees it for nothing, whereas `ansor` "
            "pays a trial for every answer, so the comparison of the two favours `markov`; in brackets the bootstrap over "
            "operators and "
            "seeds. The vendor's library has no model here."
        )
    return (
        f"Ours: {searches.device}, float32, {searches.hardware.units} threads; seeds {searches.seeds}; measured trials: "
        f"{trials}; "
        f"all winners and torch timed again in {rounds} interleaved rounds, of which medians are compared; in brackets "
        f"{LEVEL} bootstrap intervals, of a class over operators and seeds, of an operator over rounds. The vendor's library is "
        "torch "
        "(oneDNN); on a CPU there are no virtual threads."
    )


def _disagreements(speeds: Speeds, classes: list[str], paper: Figure) -> tuple[str, ...]:
    """Return sentences, with a possible cause, on every class in which our ratio and the paper's disagree."""
    said = []
    for name in classes:
        _, _, _, theirs = published.class_means(paper, name)
        logs = _over_roller(speeds, name)
        if logs.size and differ(ours := math.exp(float(logs.mean())), theirs):
            here = f"{name}: markov over roller is {ours:.2f} here, Gensor over Roller {theirs:.2f} in the paper."
            said.append(f"{here} {WHY[name]}")
    return tuple(said) or ("No class disagrees by more than a quarter in what the graph adds to the tree.",)


def differ(ours: float, theirs: float) -> bool:
    """Return whether two ratios disagree: they differ by more than a factor `FAR`, or are clearly on different sides of 1."""
    apart = max(ours, theirs) / min(ours, theirs)
    return apart > FAR or (ours - 1.0) * (theirs - 1.0) < 0 and apart > 1.05


WHY = {
    "conv2d": "The paper's six shapes spread from 1.06 to 6.17, so its mean hangs on which shapes are taken; ours are others, "
    "and the tile rules of our `roller` and the program generated from a tile are not those of its code.",
    "gemm": "The shapes differ, and both strategies here share one code generator, whose fixed parts (vector loads, packing, "
    "unrolling) serve the tree as well as the graph.",
    "gemv": "A matrix-vector product is bound by memory and by how many loads are under way. Neither `roller` nor `markov` "
    "shares a reduction between threads (`markov_ext` and `ansor` may), so on a GPU both hang on how few rows there are, and the "
    "shapes differ.",
    "avg_pool2d": "Pools move far more bytes than they compute; the shapes differ, and Roller takes its rules for plain "
    "operators there, of which ours has the alignment alone.",
}
"""Class of operators -> possible causes of a disagreement, which were not tested."""
