"""An environment of the model's tier with a measured final reward, for fine-tuning.

The process is that of `env.measured` with two differences. Timings go through a session for each operator, so that a store
answers repeated measurements. And each reward is reduced by its operator's mean of log(model / measured) so far. A constant of
the task changes no optimal policy, while the critic, which was trained on the model, would have to learn it first.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from experiments.common.journal import Journal, append_row
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

_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("operator", "schedule", "digest", "status"), str), **dict.fromkeys(("reward", "modelled"), int | float),
    "seconds": int | float | None,
}  # fmt: skip
"""Fields of a line, with their types."""


class Timings:
    """Measurements of a fine-tuning: a line of a file for every different kernel."""

    def __init__(self, path: Path, backend: Backend, store: Store | None) -> None:
        """Read the lines of a run that was stopped; a torn last one is dropped."""
        self.path, self.backend, self.store = path, backend, store
        with Journal(path, ()) as journal:
            self.rows = list(journal)
        with meant(path, "file of measurements"):
            self._known = {_checked(row)["digest"]: row for row in self.rows}
        self._sessions: dict[str, Session] = {}

    @property
    def spent(self) -> int:
        """Different kernels measured."""
        return len(self.rows)

    def of(self, text: str) -> list[dict[str, Any]]:
        """Lines of the kernels of an operator."""
        return [row for row in self.rows if row["operator"] == text]

    def gain(self, graph: ConstructionGraph, row: np.ndarray, model_s: float) -> float:
        """Measured less modelled R of a program, the mean of its operator's kernels that ran so far taken away."""
        found = self.line(graph, Schedule(row), model_s)
        mine = self.of(str(graph.operator))
        ran = [known["reward"] - known["modelled"] for known in mine if known["status"] == Status.OK.value]
        return float(found["reward"]) - _modelled(graph, model_s) - (float(np.mean(ran)) if ran else 0.0)

    def line(self, graph: ConstructionGraph, schedule: Schedule, model_s: float) -> dict[str, Any]:
        """The line of a program's kernel, measured and written where there is none; `model_s` are the model's seconds for it."""
        digest = self.backend.digest(graph.operator, schedule, graph.hardware)
        if digest not in self._known:
            self._known[digest] = self._measured(graph, schedule, digest, _modelled(graph, model_s))
        return self._known[digest]

    def _measured(self, graph: ConstructionGraph, schedule: Schedule, digest: str, modelled: float) -> dict[str, Any]:
        """The line of a kernel, which is written."""
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
    """A line that was read; KeyError or TypeError for one that `Timings.line` does not write."""
    for name, kinds in _FIELDS.items():
        if not isinstance(row[name], kinds):
            raise TypeError(f"a line has {name} {row[name]!r}")
    return row


def _modelled(graph: ConstructionGraph, model_s: float) -> float:
    """R of the model's seconds."""
    return max(0.0, math.log(CAP_OVER_FLOOR * graph.floor / model_s))


class MeasuredVectorEnv(ConstructVectorEnv):
    """`ConstructVectorEnv` of the analytic tier, reset within the step; the reward of an episode's end is a measurement's."""

    def __init__(self, timings: Timings, num_envs: int, **arguments: Any) -> None:
        """`arguments` as of `ConstructVectorEnv`, without `backend` and `autoreset_mode`."""
        super().__init__(num_envs, backend="analytic", autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
        self.timings = timings

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As of the environment, with that reward."""
        rows, graphs = self.rows.copy(), self.graphs  # `stop` and the horizon leave the program as it is
        observation, rewards, ended, truncated, info = super().step(actions)
        for i in np.flatnonzero(ended):
            rewards[i] += self.timings.gain(graphs[i], rows[i], float(info["final_info"]["runtime_s"][i]))
        return observation, rewards, ended, truncated, info
