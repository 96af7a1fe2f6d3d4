"""Check whether Ansor falls behind because its sketches do not contain the best programs, from the trials of a finished study."""

from __future__ import annotations

import math

import numpy as np

from agents.ansor.sketches import derive_sketches
from experiments.tables.searchers.studies import Study
from gensor_gym.construction import ConstructionGraph
from gensor_gym.foreign import read_objects
from gensor_gym.graph.schedule import Schedule


def best_found(study: Study) -> dict[str, tuple[float, str]]:
    """Operator -> (seconds, schedule) of the fastest trial of all searches of a study."""
    best = dict.fromkeys(study.scores.tasks, (math.inf, ""))
    for trial in read_objects(study.folder / "results.jsonl", finite=False):
        # The folder may hold searches of an earlier run over more operators, strategies or seeds.
        ours = trial["operator"] in best and trial["strategy"] in study.scores.curves and trial["seed"] in study.scores.seeds
        if ours and trial["seconds"] is not None:
            best[trial["operator"]] = min(best[trial["operator"]], (trial["seconds"], trial["schedule"]))
    return best


def sentence(study: Study) -> str:
    """Sentence on how many tasks have their best program in a sketch, and on Ansor's distance from it on these and the others."""
    if "ansor" not in study.scores.curves:
        return "Not followed up: not every search of Ansor was done."
    behind: dict[bool, list[float]] = {True: [], False: []}
    ends = study.scores.curves["ansor"].seconds[:, :, -1]
    for end, (operator, (seconds, text)) in zip(ends, best_found(study).items(), strict=True):
        graph = ConstructionGraph(operator, study.summary["hardware"], study.summary["space"])
        inside = any(sketch.vector_of(Schedule.parse(text).row) is not None for sketch in derive_sketches(graph))
        behind[inside].append(float(np.log(end / seconds).mean()))
    there, others = (f"{100 * float(np.mean(behind[k])):.1f} %" if behind[k] else "-" for k in (True, False))
    return (
        f"Followed up: the best program that any search found is in one of Ansor's sketches for {len(behind[True])} of "
        f"{len(ends)} operators. Ansor ends {there} behind it there in the mean, and {others} on the others."
    )
