"""Gymnasium environments in which an agent writes a program choice by choice: `WriteEnv` and `WriteVectorEnv`."""

from __future__ import annotations

import numpy as np

from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.episodes.single import EpisodeEnv
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.settings import DEFAULT_OPERATOR, Settings, groups_of
from gensor_gym.env.tasks import OperatorSpec
from gensor_gym.env.writing import process
from gensor_gym.env.writing.observation import WriteView
from gensor_gym.env.writing.tasks import WriteTasks
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.records.backend import warn_of_gap


class WriteEnv(EpisodeEnv):
    """Write a tensor program choice by choice.

    ## Description
    `gensor_gym/Construct-v0` changes a program step by step. Here each number of a program is written once: knobs first, then the
    tiles of every axis, from the innermost tile outwards. An episode has one step for each decision, and only the final program
    is evaluated. Numbers that are not written yet are at their minimum.

    ## Action Space
    `choices="sizes"`: `Discrete(256)`, the index of a number among the decision's options: the tile of one level, virtual
    threads, or a knob's value. `choices="columns"`: `Discrete(n)` with n the most options of a decision; an option sets a knob,
    or the tiles of all levels of an axis at once. `info["action_mask"]` (int8) and `action_masks()` (bool) give the options that
    may still lead to a legal program (`env/writing/room.py`). No legal program is excluded; at the last decision the mask is
    exact. An action that is not an option leaves the number at its minimum; a masked option is taken, and the program is illegal.
    `masked=False` masks only actions that are not options, which is faster.

    ## Observation Space
    `flat`: Box of float32; `dict`: its groups (tiles, knobs, level, resources, decision, remaining, choices, operator, hardware).
    No feature uses the analytic model.

    ## Rewards
    0 before the last step; at the end R = max(0, log(T_cap / T)) like in `gensor_gym/Construct-v0`, or 0 if the program is
    illegal or its status is not OK. `info` has `runtime_s`, `status`, `steps`, and `regret` if the optimum is known.

    ## Starting State
    Nothing is written. `reset(options={"operator": ..})` chooses the task.

    ## Episode End
    Terminated after the last decision. Never truncated.

    ## Arguments
    operator (Operator, text, id, split or list of these: one is drawn at each reset), hardware, backend, space, choices, masked,
    observation, observation_groups, discount, timing, render_mode.

    ## Version History
    v0: first version.
    """

    tasks: WriteTasks

    def __init__(
        self,
        operator: OperatorSpec = DEFAULT_OPERATOR,
        hardware: Hardware | str = "host",
        backend: str | Backend = "analytic",
        space: str = "gensor",
        choices: str = "sizes",
        masked: bool = True,
        observation: str = "flat",
        discount: float = 1.0,
        timing: str = "pooled",
        observation_groups: list[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        if masked not in (True, False):
            raise ValueError(f"masked {masked!r}: expected True or False")
        tasks = WriteTasks(operator, hardware, space, choices)
        final = FinalReward(backend, tasks.hardware, timing)
        warn_of_gap(final.backend, tasks.operators, tasks.space)
        settings = Settings(final.name, observation, groups_of(observation_groups), discount, 0.0, False, timing)
        super().__init__(tasks, final, settings, WriteView(settings), render_mode)
        self.masked = bool(masked)
        self._vector = np.array([float(masked), settings.vector()[3]])
        self._room = tasks.room()

    def _begin(self) -> None:
        own = self._task, self._row, self._scalars
        process.begin_one(self.tasks.written, *own, self._vector[0], self._mask, self._obs)

    def _advance(self, action: int) -> tuple[float, bool]:
        own = self._task, self._row, self._scalars, action
        done: tuple[float, bool] = process.step_one(
            self.tasks.written, *own, self._vector, self._room, self._mask, self._obs
        )
        return done


class WriteVectorEnv(EpisodesVectorEnv):
    """Vector environment in which `num_envs` programs are written. Each behaves like a `WriteEnv` with the same arguments."""

    tasks: WriteTasks
    single = WriteEnv

    def _begin_part(self, chosen: np.ndarray) -> None:
        own = self._task, self._rows, self._scalars
        process.begin_range(self.tasks.written, chosen, *own, self._vector[0], self._masks, self._obs)

    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        own = self._task, self._rows, self._scalars, actions, skip
        found = self._masks, self._obs, self._rewards, self._ended
        process.step_range(self.tasks.written, low, high, *own, self._vector, self.tasks.room(), *found)
