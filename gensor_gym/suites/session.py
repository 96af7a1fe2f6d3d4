"""Search sessions of a suite. They end a search that finds no new programs, and enforce the rules of a part of the suite.

Such a part (a track) may allow only recorded programs, forbid the analytic model, or count steps of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from gensor_gym.env import CONSTRUCT
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.records.measured_backend import candidates
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task, TraceRow

OnTrial = Callable[[TraceRow], None]
MOST_IDLE = 1000
WINDOWS = 25
"""Number of points of a learning curve."""


class NoModel(ValueError):
    """Error of a search that evaluated the analytic model, although its track (part of the suite) forbids the model."""


class SuiteSession(Session):
    """Search session of a suite that ends when the search stops measuring new programs.

    Programs that were measured before cost nothing, so such a search could continue forever.
    """

    def __init__(self, task: Task, budget: Budget, on_trial: OnTrial | None = None) -> None:
        """Find the backend and build the graph of the task, like `Session`."""
        super().__init__(task, budget, on_trial=on_trial)
        self._idle = 0

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Measure schedules like `Session`. BudgetSpent also after `MOST_IDLE` successive calls that measured nothing new."""
        before = self.trials
        found = super().measure(schedules)
        self._idle = 0 if self.trials > before else self._idle + 1
        if self._idle >= MOST_IDLE:
            raise BudgetSpent(f"{MOST_IDLE} times in a row nothing new was measured")
        return found


class CandidateSession(SuiteSession):
    """Search session that measures only the recorded programs of its task, which `candidates` lists."""

    def __init__(self, task: Task, budget: Budget, on_trial: OnTrial | None = None) -> None:
        """Build the graph like `Session`. ValueError for an operator without recorded programs."""
        super().__init__(task, budget, on_trial)
        self.candidates = candidates(self.graph.hardware.name, str(task.operator))
        """Recorded programs of the task, sorted by text, so that the order does not reveal their times."""
        self._known = frozenset(self.candidates)

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Measure schedules like `Session`. ValueError for a program that is not among the candidates."""
        for schedule in schedules:
            if isinstance(schedule, Schedule) and schedule not in self._known:
                raise ValueError(f"{schedule} is not recorded: expected some of the {len(self.candidates)} session.candidates")
        return super().measure(schedules)


class ModelFreeSession(SuiteSession):
    """Search session whose graph raises NoModel if the search evaluates the analytic model."""

    def __init__(self, task: Task, budget: Budget, on_trial: OnTrial | None = None) -> None:
        """Find the backend, and build a graph that raises NoModel instead of evaluating the model."""
        super().__init__(task, budget, on_trial)
        self.graph.meter = _refuse

    def charge(self, evaluations: int) -> None:
        """Raise NoModel, because this part of the suite forbids the analytic model."""
        _refuse(evaluations)


def _refuse(evaluations: int) -> None:
    raise NoModel(f"{evaluations} evaluations of the model asked for: this track gives no model, expected none")


class LearningSession(SuiteSession):
    """Search session that also makes training environments of its task. Their steps are charged like evaluations of the model.

    Seconds are counted from the first trial on: training time is free.
    """

    def __init__(self, task: Task, budget: Budget, steps: int, on_trial: OnTrial | None = None) -> None:
        """Start a session in which `steps` environment steps and model evaluations are allowed in total."""
        super().__init__(task, replace(budget, evaluations=steps), on_trial)
        self.steps = steps
        self.ended: list[tuple[int, float]] = []
        """(steps taken, regret) of every ended episode. The regret is infinite if the episode has no program."""

    @property
    def steps_left(self) -> int:
        """Number of environment steps and model evaluations that are left."""
        return self.steps - self.evaluations

    def charge(self, evaluations: int) -> None:
        """Charge `evaluations` environment steps, or evaluations of the model. BudgetSpent if fewer are left."""
        if evaluations > self.steps_left:
            raise BudgetSpent(f"{self.evaluations} of {self.steps} steps spent, {evaluations} more asked for")
        self.evaluations += evaluations

    def make_env(self, name: str = CONSTRUCT, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Make an environment of the task whose steps are charged. `name` and arguments are those of `gymnasium.make`."""
        return Counted(gymnasium.make(name, **{**arguments, **self._of_task()}), self)

    def make_vec(self, count: int, name: str = CONSTRUCT, **arguments: Any) -> Any:
        """Make a vector environment of `count` environments whose steps are charged.

        Arguments are those of `gymnasium.make_vec`. An episode is reset within the step that ends it.
        """
        made = {"autoreset_mode": AutoresetMode.SAME_STEP, "threads": 1, **arguments, **self._of_task()}
        return CountedVector(gymnasium.make_vec(name, count, **made), self)

    def _of_task(self) -> dict[str, Any]:
        task = self.task
        return {"operator": task.operator, "hardware": task.hardware, "backend": task.backend, "space": task.space}

    def learning_curve(self) -> list[list[float | int | None]]:
        """Return the learning curve as `WINDOWS` points [steps, mean regret, best regret so far].

        The mean is over the episodes that ended since the previous point. A regret is None if no episode has ended. Infinite
        regrets are left out.
        """
        points: list[list[float | int | None]] = []
        if not self.ended:
            return points
        at, regrets = (np.array(column, dtype=float) for column in zip(*self.ended, strict=True))
        for end in np.linspace(0, self.steps, WINDOWS + 1)[1:]:
            now = (at > end - self.steps / WINDOWS) & (at <= end) & np.isfinite(regrets)
            before = (at <= end) & np.isfinite(regrets)
            mean = round(float(regrets[now].mean()), 6) if now.any() else None
            points.append([int(end), mean, round(float(regrets[before].min()), 6) if before.any() else None])
        return points


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that charges the steps of an environment to a session."""

    def __init__(self, env: gymnasium.Env[Any, Any], session: LearningSession) -> None:
        """Wrap an environment. `step` raises BudgetSpent if the session has no steps left."""
        super().__init__(env)
        self.session = session

    def step(self, action: Any) -> Any:
        """Charge one step, and take it in the environment."""
        self.session.charge(1)
        found = self.env.step(action)
        if found[2]:
            self.session.ended.append((self.session.evaluations, float(found[4].get("regret", np.inf))))
        return found

    def action_masks(self) -> np.ndarray:
        """Return the mask of legal actions, bool [N]."""
        masks: np.ndarray = self.env.unwrapped.action_masks()  # type: ignore[attr-defined]
        return masks


class CountedVector:
    """Wrapper that charges the steps of a vector environment to a session. Other attributes are those of the environment."""

    def __init__(self, envs: Any, session: LearningSession) -> None:
        """Wrap a vector environment. `step` raises BudgetSpent if the session has too few steps left."""
        self.envs, self.session = envs, session

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the wrapped environment."""
        return getattr(self.envs, name)

    def step(self, actions: np.ndarray) -> Any:
        """Charge one step of each environment, and take it."""
        self.session.charge(self.envs.num_envs)
        found = self.envs.step(actions)
        if (ended := np.flatnonzero(found[2])).size:
            regrets = found[4].get("final_info", found[4]).get("regret", np.full(self.envs.num_envs, np.inf))
            self.session.ended.extend((self.session.evaluations, float(regrets[i])) for i in ended)
        return found
