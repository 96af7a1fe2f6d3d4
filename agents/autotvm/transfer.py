"""Transfer from earlier tasks: a global cost model supports the local model (Chen et al., NeurIPS 2018, section 4).

The prediction is global(x) + local(x): the local model is boosted on top of the global model's scores (its margin). The margin is
halved for every 64 trials and dropped below 5 % (numbers of the authors' released tuner). Features must have the same meaning for
other operators: `curve` is made for that, and our `loops` has the same columns for all operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from agents.autotvm.program_features import program_features
from agents.autotvm.tree_model import TreeModel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.locate import located
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.store import Record
from gensor_gym.measure.records.tables import read_table

LEAST_RECORDS = 500
"""Smallest number of stored trials of other tasks to which a global model is fitted."""
MOST_OF_A_TASK = 2000
"""Maximum number of trials of one task that the global model learns from. They are spread evenly over the task's records."""
HALF, DROPPED = 64, 0.05


class GlobalModel:
    """Trees fitted to measured programs of other operators on the same hardware.

    Programs are compared only with programs of the same operator.
    """

    def __init__(self, path: str, graph: ConstructionGraph, kind: str, objective: str, recall_of: int, seed: int) -> None:
        """Read the stored trials at `path` and fit the trees to those of other operators than the graph's.

        `kind` is the representation of programs, and `objective` that of `TreeModel`. ValueError if the file is missing or has
        too few trials.
        """
        tasks = _tasks(_records(located(path)), graph)
        parts = [(program_features(kind, other, rows), labels_of(seconds)) for other, rows, seconds in tasks]
        count = sum(len(labels) for _, labels in parts)
        if count < LEAST_RECORDS:
            raise ValueError(f"history={path!r}: {count} trials of other operators in this space, {LEAST_RECORDS} needed")
        self.model = TreeModel(objective, 2 * recall_of, seed=seed)
        features, labels = np.concatenate([f for f, _ in parts]), np.concatenate([y for _, y in parts])
        self.model.fit(features, labels, groups=[len(y) for _, y in parts])

    def margin(self, features: np.ndarray, trials: int) -> np.ndarray | None:
        """Return the scores [B] that the global model contributes to the local model's after `trials` trials of the current task.

        None once the contribution is too small to be used.
        """
        share = 0.5 ** (trials / HALF)
        return share * self.model.predict(features) if share >= DROPPED else None


def labels_of(seconds: np.ndarray) -> np.ndarray:
    """Return each program's throughput relative to the fastest, float64 [B].

    A failed program, whose seconds are infinite, has 0.
    """
    best = np.min(seconds)
    return np.where(np.isfinite(seconds), best / seconds, 0.0) if np.isfinite(best) else np.zeros(len(seconds))


def _records(path: Path) -> Iterable[Record]:
    if not path.exists():
        raise ValueError(f"history={str(path)!r}: no such file or folder; expected a store, a table or a folder of tables")
    if path.is_dir():
        return [record for file in sorted(path.glob("*.parquet")) for record in read_table(file).records]
    return read_table(path).records


def _tasks(
    records: Iterable[Record], graph: ConstructionGraph
) -> list[tuple[ConstructionGraph, np.ndarray, np.ndarray]]:
    """Group stored trials by operator, without the graph's own operator.

    Return (graph of the operator, encoded programs [N, ROW], measured seconds [N]) for each; seconds are infinite for failed
    trials.
    """
    by_operator: dict[str, list[Record]] = {}
    for record in records:
        if record.operator != str(graph.operator):
            by_operator.setdefault(record.operator, []).append(record)
    found = []
    for operator, trials in sorted(by_operator.items()):
        other = ConstructionGraph(operator, graph.hardware, graph.space)
        chosen = trials[:: -(-len(trials) // MOST_OF_A_TASK)]
        parsed = [(Schedule.parse(record.schedule), record.measurement) for record in chosen]
        legal = [(s.row, m.seconds if m.status is Status.OK else np.inf) for s, m in parsed if other.is_legal(s)]
        if legal:
            found.append((other, np.array([row for row, _ in legal]), np.array([seconds for _, seconds in legal])))
    return found
