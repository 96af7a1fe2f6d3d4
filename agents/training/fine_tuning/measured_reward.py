"""An environment on the analytic model whose final reward is measured, for fine-tuning, and the budget of measurements.

The process is that of `env.measured` with two differences. First, measurements use one session per operator, so that a store
answers repeated requests. Second, each reward is reduced by its operator's mean of log(model / measured) so far. A constant of
the task changes no optimal policy, but the critic, which was trained on the model, would have to learn it first.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from omegaconf import DictConfig

from agents.runs.journal import Journal, append_row
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.measured import reward
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.foreign import meant
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.session import Budget, Session, Task

CURVE = "measured_curve.jsonl"
"""File name of the learning curve. It gets a line whenever the policy is saved."""
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("operator", "schedule", "digest", "status"), str), **dict.fromkeys(("reward", "modelled"), int | float),
    "seconds": int | float | None,
}  # fmt: skip
"""Fields of a line in the file of measurements -> their types."""


class Timings:
    """Measurements of a fine-tuning, kept in a file with a line for every distinct kernel."""

    def __init__(self, path: Path, backend: Backend, store: Store | None) -> None:
        """Read the measurements of an earlier run from the file. A torn last line is dropped."""
        self.path, self.backend, self.store = path, backend, store
        with Journal(path, ()) as journal:
            self.rows = list(journal)
        with meant(path, "file of measurements"):
            self._known = {_checked(row)["digest"]: row for row in self.rows}
        self._sessions: dict[str, Session] = {}

    @property
    def spent(self) -> int:
        """Number of distinct measured kernels."""
        return len(self.rows)

    def of(self, text: str) -> list[dict[str, Any]]:
        """Return the lines of an operator's kernels. `text` is the operator's text."""
        return [row for row in self.rows if row["operator"] == text]

    def gain(self, graph: ConstructionGraph, row: np.ndarray, model_s: float) -> float:
        """Return the correction of a program's final reward R: measured R - modelled R - mean of this difference.

        The mean is over the operator's successful kernels so far. A new kernel is measured first.
        """
        found = self.line(graph, Schedule(row), model_s)
        mine = self.of(str(graph.operator))
        ran = [known["reward"] - known["modelled"] for known in mine if known["status"] == Status.OK.value]
        return float(found["reward"]) - _modelled(graph, model_s) - (float(np.mean(ran)) if ran else 0.0)

    def line(self, graph: ConstructionGraph, schedule: Schedule, model_s: float) -> dict[str, Any]:
        """Return the file's line about a program's kernel, after measuring a kernel that is new.

        `model_s` is the program's time by the model.
        """
        digest = self.backend.digest(graph.operator, schedule, graph.hardware)
        if digest not in self._known:
            self._known[digest] = self._measured(graph, schedule, digest, _modelled(graph, model_s))
        return self._known[digest]

    def _measured(self, graph: ConstructionGraph, schedule: Schedule, digest: str, modelled: float) -> dict[str, Any]:
        text = str(graph.operator)
        if text not in self._sessions:
            task = Task(graph.operator, graph.hardware, self.backend, graph.space)
            self._sessions[text] = Session(task, Budget(), self.store)
        found = self._sessions[text].measure([schedule])[0]
        line = {
            "operator": text, "schedule": str(schedule), "digest": digest, "status": found.status.value,
            "seconds": found.seconds if math.isfinite(found.seconds) else None, "reward": reward(graph, found),
            "modelled": modelled,
        }  # fmt: skip
        self.rows.append(line)
        append_row(self.path, line)
        return line


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    for name, kinds in _FIELDS.items():
        if not isinstance(row[name], kinds):
            raise TypeError(f"a line has {name} {row[name]!r}")
    return row


def _modelled(graph: ConstructionGraph, model_s: float) -> float:
    """Return R, the final reward of an episode, for a program that takes `model_s` seconds."""
    return max(0.0, math.log(CAP_OVER_FLOOR * graph.floor / model_s))


class MeasuredVectorEnv(ConstructVectorEnv):
    """`ConstructVectorEnv` on the analytic model with same-step resets, whose last reward of an episode is measured."""

    def __init__(self, timings: Timings, num_envs: int, **arguments: Any) -> None:
        """Make the environments. `arguments` are those of `ConstructVectorEnv`, without `backend` and `autoreset_mode`."""
        super().__init__(num_envs, backend="analytic", autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
        self.timings = timings

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step like `ConstructVectorEnv`, and add `Timings.gain` to the last reward of every ended episode.

        The last reward is thereby a measured one.
        """
        rows, graphs = self.rows.copy(), self.graphs  # `stop` and the horizon do not change the program
        observation, rewards, ended, truncated, info = super().step(actions)
        for i in np.flatnonzero(ended):
            rewards[i] += self.timings.gain(graphs[i], rows[i], float(info["final_info"]["runtime_s"][i]))
        return observation, rewards, ended, truncated, info


class MeasuredBudget:
    """Counts distinct kernels and seconds over all runs of one command, and says whether the limits are reached."""

    def __init__(self, timings: Timings, config: DictConfig, folder: Path, resumed: bool) -> None:
        """Read the limits `measurements` and `seconds` from the configuration. Seconds of earlier runs count if `resumed`."""
        self.timings, self.config, self.path = timings, config, folder / CURVE
        self._begin = time.perf_counter() - (seconds_before(self.path) if resumed else 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds of all runs so far."""
        return time.perf_counter() - self._begin

    def is_left(self) -> bool:
        """Return whether some of the budget is left."""
        return bool(self.timings.spent < self.config.measurements and self.elapsed < self.config.seconds)

    def add_point(self, mean_return: float | None) -> None:
        """Append a line to the learning curve: kernels measured, seconds, and the mean return."""
        point = {"measurements": self.timings.spent, "seconds": round(self.elapsed, 1), "mean_return": mean_return}
        append_row(self.path, point)


def seconds_before(path: Path) -> float:
    """Return the seconds of earlier runs up to the last point of the learning curve. A torn last line is dropped."""
    with Journal(path, ()) as journal:
        points = list(journal)
    return float(points[-1]["seconds"]) if points else 0.0
