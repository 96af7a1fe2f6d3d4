"""The native vector form: thousands of constructions stepped by compiled code, on several threads."""

from __future__ import annotations

import numpy as np
from gymnasium.vector import AutoresetMode

from gensor_gym.env.construct import ConstructEnv
from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.settings import DEFAULT_OPERATOR
from gensor_gym.env.tasks import OperatorSpec, TaskSet
from gensor_gym.hardware.types import Hardware


class ConstructVectorEnv(EpisodesVectorEnv):
    """`num_envs` constructions side by side; each behaves as a `ConstructEnv` with the same arguments.

    Environment i is seeded with seed + i. `autoreset_mode` is NEXT_STEP (Gymnasium's default), SAME_STEP (`final_obs` and
    `final_info` in infos) or DISABLED (reset with `options={"reset_mask": bool [num_envs]}`). `threads` defaults to the
    usable cores or GENSOR_GYM_THREADS.
    """

    tasks: TaskSet

    def __init__(
        self,
        num_envs: int = 1,
        operator: OperatorSpec = DEFAULT_OPERATOR,
        hardware: Hardware | str = "host",
        backend: str = "analytic",
        space: str = "gensor",
        observation: str = "flat",
        discount: float = 1.0,
        step_cost: float = 0.001,
        timing: str = "pooled",
        observation_groups: list[str] | None = None,
        shaping: bool = True,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        moves: str = "primitives",
        reward: str = "final",
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        one = ConstructEnv(
            operator, hardware, backend, space, observation, discount, step_cost, timing, observation_groups, shaping,
            render_mode, moves, reward,
        )  # fmt: skip
        super().__init__(one, num_envs, autoreset_mode, threads)
        self._vector = self.settings.vector()

    def _begin_part(self, chosen: np.ndarray) -> None:
        """See `process.begin`."""
        tasks = self.tasks
        tasks.process.begin_range(
            *tasks.own, chosen, self._task, self._rows, self._scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static,
            tasks.initial, tasks.starts, tasks.room(), self._masks, self._obs,
        )  # fmt: skip

    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        """See `process.advance`."""
        tasks = self.tasks
        tasks.process.step_range(
            *tasks.own, low, high, self._task, self._rows, self._scalars, actions, skip, tasks.ints, tasks.floats, tasks.sizes,
            self._vector, tasks.room(), self._masks, self._obs, self._rewards, self._ended,
        )  # fmt: skip
