"""Transfer from earlier tasks: a global model under the local model (Chen et al., NeurIPS 2018, section 4).

The prediction is global(x) + local(x): the local model is boosted on top of the global model's margin. The margin is halved for
every 64 trials and dropped below 5 % (numbers of the authors' released tuner). Features must have the same meaning for other
operators: `curve` is made for that, and our `loops` has the same columns for all operators.
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
"""Smallest number of trials of other tasks that a global model is fitted to."""
MOST_OF_A_TASK = 2000
"""Maximum number of trials of one task that the global model learns from. They are spread evenly over the task's records."""
HALF, DROPPED = 64, 0.05


class GlobalModel:
    """Trees fitted to trials of other operators on the same hardware. Pairs are compared within an operator."""

    def __init__(self, path: str, graph: ConstructionGraph, kind: str, objective: str, recall_of: int, seed: int) -> None:
        """Read the trials at `path` and fit the model. ValueError if the file is missing or has too few trials."""
        tasks = _tasks(_records(located(path)), graph)
        parts = [(program_features(kind, other, rows), labels_of(seconds)) for other, rows, seconds in tasks]
        count = sum(len(labels) for _, labels in parts)
        if count < LEAST_RECORDS:
            raise ValueError(f"history={path!r}: {count} trials of other operators in this space, {LEAST_RECORDS} needed")
        self.model = TreeModel(objective, 2 * recall_of, seed=seed)
        features, labels = np.concatenate([f for f, _ in parts]), np.concatenate([y for _, y in parts])
        self.model.fit(features, labels, groups=[len(y) for _, y in parts])

    def margin(self, features: np.ndarray, trials: int) -> np.ndarray | None:
        """Margin [B] that the global model adds to scores after `trials` trials of the current task; None once it is dropped."""
        share = 0.5 ** (trials / HALF)
        return share * self.model.predict(features) if share >= DROPPED else None


def labels_of(seconds: np.ndarray) -> np.ndarray:
    """Throughput relative to the fastest program, float64 [B]; 0 for failures, whose seconds are infinite."""
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
    """(graph, rows [N, ROW], seconds [N]) of every other operator in the records. Failed trials have infinite seconds."""
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
