"""Read recorded tables of a machine for reports: kernels that succeeded, their optimum, and regrets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.benches.model import OfOperator, Sample
from experiments.statistics import expected_best, spearman
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.backend import passes_of
from gensor_gym.measure.records.optimum import Optimum, find_optimum
from gensor_gym.measure.records.tables import Table, read_table


@dataclass(frozen=True)
class Recorded(OfOperator):
    """A complete table of one task: its distinct kernels that succeeded, their optimum, and their measurements."""

    machine: str
    graph: ConstructionGraph
    rows: np.ndarray
    measured: tuple[Measurement, ...]
    optimum: Optimum
    schedules: int
    failed: int

    @property
    def seconds(self) -> np.ndarray:
        """Median seconds of the kernels, float64 [N]."""
        return np.array([m.seconds for m in self.measured])

    @property
    def sample(self) -> Sample:
        """The table as a sample for a fit."""
        return Sample(self.graph, self.rows, self.seconds)


def read_folder(folder: Path, space: str, limit: int | None = None) -> list[Recorded]:
    """Complete tables of a space in a folder, by class, at most `limit` of each class; ValueError if there are none."""
    found: dict[str, list[Recorded]] = defaultdict(list)
    for path in sorted(folder.glob("*.parquet")):
        table = read_table(path)
        if table.about.get("complete") and table.about["space"] == space:
            made = _recorded(folder.name, table)
            found[made.graph.operator.name].append(made)
    if not found:
        raise ValueError(f"{folder} holds no complete recorded table of space {space} (*.parquet, written by gensor record)")
    return [table for name in sorted(found) for table in found[name][:limit]]


def _recorded(machine: str, table: Table) -> Recorded:
    """The records of a task, with each distinct kernel once."""
    hw = hardware.from_json(table.about["hardware"])
    graph = ConstructionGraph(table.about["operator"], hw, table.about["space"], calibrated=False)
    kernels = {r.measurement.digest: r for r in reversed(table.records)}
    good = [r for r in kernels.values() if r.measurement.status is Status.OK]
    measured = tuple(r.measurement for r in good)
    drift = table.about.get("drift", 0.0)
    optimum = find_optimum([m.samples for m in measured], [passes_of(m) for m in measured], drift=drift)
    rows = graph.stack([Schedule.parse(r.schedule) for r in good])
    return Recorded(machine, graph, rows, measured, optimum, len(table.records), len(kernels) - len(good))


def regret_of_first(table: Recorded, predicted: np.ndarray) -> np.ndarray:
    """Regret of the fastest measured kernel among the first k by the prediction, for k = 1 .. N, float64 [N]."""
    order = np.argsort(predicted, kind="stable")
    return np.minimum.accumulate(regrets(table)[order])


def regret_of_random(table: Recorded) -> np.ndarray:
    """Expected regret of the best of k distinct kernels drawn at random, for k = 1 .. N, float64 [N]."""
    return expected_best(regrets(table))


def regrets(table: Recorded) -> np.ndarray:
    """Regret of every kernel, zero if it is statistically tied with the best, float64 [N]."""
    return np.where(table.optimum.tied, 0.0, np.log(table.seconds / table.optimum.best))


def again(table: Recorded) -> float:
    """Rank correlation of the times in the first pass with the later passes, which no model can exceed; NaN for one pass."""
    halves: tuple[list[float], list[float]] = ([], [])
    for m in table.measured:
        passes, first = np.asarray(passes_of(m)), min(passes_of(m), default=0)
        samples = np.asarray(m.samples)
        if not len(passes) or (passes == first).all():
            return float("nan")
        halves[0].append(float(np.median(samples[passes == first])))
        halves[1].append(float(np.median(samples[passes != first])))
    return spearman(np.array(halves[0]), np.array(halves[1]))
