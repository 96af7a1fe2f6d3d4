"""The training environment of a policy: its observer's observations, and returns that begin at the same level in every task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from agents.learners.observer import Observer
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.env.tasks import TaskSet

if TYPE_CHECKING:
    from gensor_gym.env.sb3 import ConstructVecEnv


class ObservedVecEnv(VecEnvWrapper):
    """Observations of an `Observer`. The last reward is made smaller by a constant of the task, log(T_cap / T_model(s0)).

    With discount 1 a return is then the log speed-up over the unscheduled program, less the step costs: a policy is not changed
    by a constant of the task, and the critic need not learn it. On the analytic tier with shaping `stop` is left with nothing to
    pay, and so it pays nothing, also where a program is slower than T_cap and the environment's R is cut off at 0: there the
    environment would reward no progress.
    """

    venv: ConstructVecEnv

    def __init__(self, venv: ConstructVecEnv, observer: type[Observer], measured: bool = False) -> None:
        """`venv` must see the flat observation. `measured`: its last reward is a measurement's, whatever its tier."""
        envs: Any = venv.envs  # whose tasks the observer knows
        self.observer = observer(envs)
        super().__init__(venv, observation_space=self.observer.space)
        self._running = np.zeros(venv.num_envs, dtype=np.bool_)
        tasks, settings = venv.envs.tasks, venv.envs.settings
        self._paid = settings.backend == "analytic" and settings.shaping and not measured
        starts = [graph.latency(graph.initial()) for graph in tasks.graphs]
        self._constants = np.array(
            [math.log(CAP_OVER_FLOOR * graph.floor / start) for graph, start in zip(tasks.graphs, starts, strict=True)]
        )

    @property
    def discount(self) -> float:
        """The discount of the process: gamma of an agent."""
        return self.venv.discount

    @property
    def tasks(self) -> TaskSet:
        """The tasks that are drawn from."""
        tasks: Any = self.venv.envs.tasks
        return tasks  # type: ignore[no-any-return]

    def reset(self) -> np.ndarray:
        """Observations of the first states."""
        flat: Any = self.venv.reset()
        return self.observer.observe(flat, self._running)

    def step_wait(self) -> VecEnvStepReturn:
        """As of the wrapped environment, with the observer's observations."""
        played = self.venv.envs.task_indices.copy()
        stepped: Any = self.venv.step_wait()
        flat, rewards, ended, infos = stepped
        last = np.zeros_like(rewards) if self._paid else rewards - self._constants[played].astype(np.float32)
        return self.observer.observe(flat, self._running), np.where(ended, last, rewards), ended, infos
