"""Reproduction of Ansor (OSDI 2020): single operators, the ablation of figure 7, the task scheduler (figure 10).

Run it by `python -m experiments.reproduce table=ansor`. The searches are those of conf/_ansor.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from agents.ansor.sketches import derive_sketches
from experiments.tables.searchers import ansor_tasks
from experiments.tables.searchers.studies import Study, draw_speeds, speeds, study_of, with_interval
from experiments.tables.table import Cell, Table
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import read_objects
from gensor_gym.graph.schedule import Schedule

CLASSES = ("C2D", "GMM", "GRP", "DIL", "DEP", "NRM")
"""Classes of operators of the paper's appendix C that this project supports."""
PER_CLASS = 4
LABELS = {"beam_search": "Beam search", "no_fine_tuning": "No fine-tuning", "limited_space": "Limited space"}
OPERATORS_PUBLISHED = (
    "Published (figure 6): Intel CPU with 18 cores, measured, at most 1000 trials, 10 classes x 4 shapes x batch 1 and 16, "
    "against PyTorch, Halide's auto-scheduler, FlexTensor and AutoTVM. Ansor is best or equal to the best in all 20 cases, 1.1 "
    "to 22.5 times ahead of the other search frameworks; the bars' numbers are in an image and not at hand.",
    "As in the paper: bars are geometric means over shapes of throughput over the best's, made 1 for the best search of a "
    "class; +- is the standard deviation over shapes. Here 6 of the 10 classes exist (C1D, C3D, T2D and CAP do not), and NRM is "
    "the sum alone.",
    "Ansor's lead over AutoTVM comes in the paper from a larger space (unrolled tiles of T2D, parallel reduction of NRM) than "
    "AutoTVM's templates; here both search the same space, so no such lead is to be expected.",
)
FIGURE_7 = (
    "Published (figure 7): last convolution of ResNet-50, batch 16, Intel CPU, measured, median of five runs over trials, "
    "speed over the best program's. Order at the end: full Ansor first, and both the large space and fine-tuning are needed; "
    "values are in an image and not at hand.",
    "The paper names no numbers for the limited space and the beam: see `sketches` and `beam_of_sketches` of `agents.ansor`.",
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make the tables of single operators and of figure 7, each on the model and on recorded tables, and of figure 10.

    Figure 10 is made on the model alone.
    """
    everything = list(config.overrides or ())
    given = [override for override in everything if not override.startswith("tasks.")]
    limited = f"operators=[{','.join(_named(config.limit))}]"
    single = study_of("ansor_operators", folder, [*([limited] if config.limit is not None else []), *given])
    recorded = study_of("ansor_operators_recorded", folder, given)
    seven = study_of("ansor_ablation", folder, given)
    seven_recorded = study_of("ansor_ablation_recorded", folder, given)
    return [
        operators_table("Ansor, figure 6: single operators on the model of a CPU", single, folder),
        operators_table("Ansor, figure 6: single operators on recorded tables of a CPU", recorded, folder),
        ablation_table("Ansor, figure 7 on the model of a CPU", seven, folder),
        ablation_table("Ansor, figure 7 on recorded tables of a CPU", seven_recorded, folder),
        ansor_tasks.make(folder, everything),
    ]


def _named(limit: int | None = None) -> dict[str, str]:
    """Return, by name, the class and batch of the operators of Ansor's appendix, with at most `limit` shapes of each."""
    shapes = range(PER_CLASS)[: limit or None]
    return {f"ansor/{of}{i}_b{batch}": f"{of} batch {batch}" for of in CLASSES for i in shapes for batch in (1, 16)}


def classes_of(tasks: Sequence[str]) -> list[str]:
    """Return the class and batch of every task if all are operators of Ansor's appendix, else the operators' names."""
    named = {str(operators.resolve_one(name)): of for name, of in _named().items()}
    if all(task in named for task in tasks):
        return [named[task] for task in tasks]
    return [task.partition("(")[0] for task in tasks]


def operators_table(title: str, study: Study, folder: Path) -> Table:
    """Make a table of each search's speed after its last trial, relative to the best search.

    Each class of operators has a row, relative to the best search of that class; a last row covers all operators, relative to
    their best known programs.
    """
    names = list(study.scores.curves)
    classes = classes_of(study.scores.tasks)
    last = {name: speeds(study.scores, name)[..., -1] for name in names}
    rows: list[tuple[Cell, ...]] = []
    for of in dict.fromkeys(classes):
        at = [i for i, found in enumerate(classes) if found == of]
        rows.append((f"{of} ({len(at)})", *normalised({name: last[name][at] for name in names}), "Ansor"))
    rows.append(("all: speed over the best known's", *(with_interval(last[name]) for name in names), "Ansor"))
    columns = ("class (shapes)", *(f"{name}, ours" for name in names), "best, published")
    panels = {
        of: {name: speeds(study.scores, name)[[i for i, c in enumerate(classes) if c.partition(" ")[0] == of]] for name in names}
        for of in dict.fromkeys(c.partition(" ")[0] for c in classes)
    }
    figure = draw_speeds(panels, folder / f"{study.name}.png")
    notes = (study.conditions, *study.verdicts(), _reach(study), *OPERATORS_PUBLISHED)
    return Table(title, study.stamp, columns, tuple(rows), notes, (figure,))


def normalised(found: dict[str, np.ndarray]) -> list[str]:
    """Return table cells of speeds relative to the best search, from speeds [shapes, seeds] by name of the search.

    A cell has the geometric mean over shapes and seeds, and the standard deviation over shapes.
    """
    means = {name: float(np.exp(np.log(values).mean())) for name, values in found.items()}
    best = max(means.values())
    return [f"{means[n] / best:.2f} +- {(values.mean(axis=1) / best).std():.2f}" for n, values in found.items()]


def ablation_table(title: str, study: Study, folder: Path) -> Table:
    """Make a table with a row for each variant: its speed relative to the best program by trials, as a median over runs."""
    rows: list[tuple[Cell, ...]] = []
    for name in study.scores.curves:
        cells = [_median(speeds(study.scores, name)[..., k - 1]) for k in study.checkpoints]
        published = "1 (by definition, about)" if name == "ansor" else "below full Ansor (figure alone)"
        rows.append((LABELS.get(name, "Ansor, full"), *cells, study.difference(name, "ansor"), published))
    columns = (
        "variant", *(f"speed after {k}, ours" for k in study.checkpoints), f"regret over full after {study.checkpoints[-1]}",
        "published at the end",
    )  # fmt: skip
    curves = {LABELS.get(name, "Ansor, full"): speeds(study.scores, name) for name in study.scores.curves}
    figure = draw_speeds({"speed by trials": curves}, folder / f"{study.name}.png")
    return Table(title, study.stamp, columns, tuple(rows), (study.conditions, *study.verdicts(), *FIGURE_7), (figure,))


def _median(values: np.ndarray) -> str:
    """Return a table cell: geometric mean over tasks of the median over runs of values [tasks, runs], with its interval."""

    def middle(of: np.ndarray) -> float:
        return float(np.exp(np.log(np.median(of, axis=1)).mean()))

    return with_interval(values, statistic=middle)


def _best_found(study: Study) -> dict[str, tuple[float, str]]:
    """Return (seconds, schedule) of the fastest trial of all searches of a study, by operator."""
    best = dict.fromkeys(study.scores.tasks, (math.inf, ""))
    for trial in read_objects(study.folder / "results.jsonl", finite=False):
        # The folder may hold searches of an earlier run over more operators, strategies or seeds.
        ours = trial["operator"] in best and trial["strategy"] in study.scores.curves and trial["seed"] in study.scores.seeds
        if ours and trial["seconds"] is not None:
            best[trial["operator"]] = min(best[trial["operator"]], (trial["seconds"], trial["schedule"]))
    return best


def _reach(study: Study) -> str:
    """Return a sentence on how many tasks have their best program in one of Ansor's sketches.

    It also says how far from the best program Ansor ends on these tasks and on the others.
    """
    if "ansor" not in study.scores.curves:
        return "Not followed up: not every search of Ansor was done."
    behind: dict[bool, list[float]] = {True: [], False: []}
    ends = study.scores.curves["ansor"].seconds[:, :, -1]
    for end, (operator, (seconds, text)) in zip(ends, _best_found(study).items(), strict=True):
        graph = ConstructionGraph(operator, study.summary["hardware"], study.summary["space"])
        inside = any(sketch.vector_of(Schedule.parse(text).row) is not None for sketch in derive_sketches(graph))
        behind[inside].append(float(np.log(end / seconds).mean()))
    there, others = (f"{100 * float(np.mean(behind[k])):.1f} %" if behind[k] else "-" for k in (True, False))
    return (
        f"Followed up: the best program that any search found is in one of Ansor's sketches for {len(behind[True])} of "
        f"{len(ends)} operators. Ansor ends {there} behind it there in the mean, and {others} on the others."
    )
