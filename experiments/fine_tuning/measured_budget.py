"""The budget of a fine-tuning and its learning curve, which gets a line whenever the policy is saved."""

from __future__ import annotations

import time
from pathlib import Path

from omegaconf import DictConfig

from experiments.common.journal import Journal, append_row
from experiments.fine_tuning.measured_reward import Timings

CURVE = "measured_curve.jsonl"


class MeasuredBudget:
    """Counts different kernels and seconds over all runs of the same command, and compares them with the limits."""

    def __init__(self, timings: Timings, config: DictConfig, folder: Path, resumed: bool) -> None:
        """Take the limits `measurements` and `seconds` from the configuration. The seconds of earlier runs count if `resumed`."""
        self.timings, self.config, self.path = timings, config, folder / CURVE
        self._begin = time.perf_counter() - (seconds_before(self.path) if resumed else 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds of all runs so far."""
        return time.perf_counter() - self._begin

    def is_left(self) -> bool:
        """Whether some of the budget is left."""
        return bool(self.timings.spent < self.config.measurements and self.elapsed < self.config.seconds)

    def add_point(self, mean_return: float | None) -> None:
        """Append a line to the curve."""
        point = {"measurements": self.timings.spent, "seconds": round(self.elapsed, 1), "mean_return": mean_return}
        append_row(self.path, point)


def seconds_before(path: Path) -> float:
    """Seconds of earlier runs until the last point of the curve; a torn last line is dropped."""
    with Journal(path, ()) as journal:
        points = list(journal)
    return float(points[-1]["seconds"]) if points else 0.0
