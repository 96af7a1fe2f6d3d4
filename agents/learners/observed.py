"""Training environment of a policy, with its observer's observations and returns that are comparable between tasks."""

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
    """Vector environment for training: an `Observer` makes the observations, and returns are comparable between tasks.

    The environment's last reward is R = max(0, log(T_cap / T)) of the program's time T (`gensor_gym.env.reward`). The constant
    log(T_cap / T(s0)) of the task, with the model's time T(s0) of the unscheduled program, is subtracted from it. With discount 1
    a return is then the log speed-up over the unscheduled program, minus the step costs. A constant of the task does not change
    the best policy, and the critic need not learn it.

    On the analytic backend with shaping, the last reward is always 0, because earlier rewards have paid the whole speed-up. That
    includes programs slower than T_cap, for which R is 0 and would ignore progress.
    """

    venv: ConstructVecEnv

    def __init__(self, venv: ConstructVecEnv, observer: type[Observer], measured: bool = False) -> None:
        """Wrap `venv`, which must have the flat observation.

        With `measured`, last rewards are treated as measured ones on every backend, so that shaping has not paid them.
        """
        envs: Any = venv.envs  # the observer reads the environments' tasks
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
        """Discount of the decision process; an agent's gamma must be equal to it."""
        return self.venv.discount

    @property
    def tasks(self) -> TaskSet:
        """Tasks from which episodes are drawn."""
        tasks: Any = self.venv.envs.tasks
        return tasks  # type: ignore[no-any-return]

    def reset(self) -> np.ndarray:
        """Reset the environments; return the observer's observations of the first states."""
        flat: Any = self.venv.reset()
        return self.observer.observe(flat, self._running)

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments; return the observer's observations and the rewards, last rewards without the task's constant."""
        played = self.venv.envs.task_indices.copy()
        stepped: Any = self.venv.step_wait()
        flat, rewards, ended, infos = stepped
        last = np.zeros_like(rewards) if self._paid else rewards - self._constants[played].astype(np.float32)
        return self.observer.observe(flat, self._running), np.where(ended, last, rewards), ended, infos
