"""The Gymnasium environments of fused operators: `GirEnv`, and its vector form `GirVectorEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gensor_gym.env.episodes.several import EpisodesVectorEnv
from gensor_gym.env.episodes.single import EpisodeEnv
from gensor_gym.env.fused.observation import GirView
from gensor_gym.env.fused.process import Episodes
from gensor_gym.env.fused.tasks import FusedSpec, GirTasks
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.settings import Settings, groups_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend

DEFAULT_FUSED = "softmax(m=1536, n=128)"


class GirEnv(EpisodeEnv):
    """Schedule a fused memory-bound operator, primitive by primitive.

    ## Description
    A state is a graph of maps, reductions and moves with a complete schedule of its row nest: a header (vector, tile, rows, loop,
    streaming), and a level of memory for every value that several passes read. The space follows IntelliGen (arXiv 2307.04995).

    ## Action Space
    `Discrete(75)`: stop; raise and lower of each field of the header; place of each of 16 values at DRAM, RECOMPUTE, SRAM, REG.
    `info["action_mask"]` (int8) and `action_masks()` (bool) give the legal actions; an illegal action changes nothing and costs
    its step.

    ## Observation Space
    `flat`: Box of float32; `dict`: its groups (header, placement, speed, terms, remaining, nest, cells); `successors`: Box
    [actions, features]; `graph`: `spaces.Graph` of the nest's values (`env/fused/graph_view.py`).

    ## Rewards
    A step pays discount * Phi(s') - Phi(s) - step_cost, and `stop` pays R - Phi(s), like in `gensor_gym/Construct-v0`. With the
    model as backend `info["regret"]` at the end compares the program with the best program of the whole space.

    ## Starting State
    No vectors or tiles; every value is kept in DRAM between kernels. `reset(options={"operator": .., "schedule": ..})` starts at
    any legal schedule.

    ## Episode End
    Terminated by `stop`, or at the horizon, where any action counts as `stop`. Never truncated.

    ## Arguments
    operator (Dataflow, text, or a list of these: one is drawn at each reset), hardware, backend (`analytic`, `cpu`, `auto`),
    space (`gir`, `monotone`, `powerfusion`), observation, observation_groups, discount, step_cost, shaping, timing, render_mode.

    ## Version History
    v0: first version.
    """

    tasks: GirTasks

    def __init__(
        self,
        operator: FusedSpec = DEFAULT_FUSED,
        hardware: Hardware | str = "host",
        backend: str | Backend = "analytic",
        space: str = "gir",
        observation: str = "flat",
        discount: float = 1.0,
        step_cost: float = 0.001,
        timing: str = "pooled",
        observation_groups: list[str] | None = None,
        shaping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        tasks = GirTasks(operator, hardware, space)
        final = FinalReward(backend, tasks.hardware, timing)
        groups = groups_of(observation_groups)
        settings = Settings(final.name, observation, groups, discount, step_cost, shaping, timing)
        super().__init__(tasks, final, settings, GirView(settings), render_mode)

    def _episodes(self) -> Episodes:
        state = (self._row[None], self._scalars[None], self._mask[None], self._obs[None])
        return Episodes(self.tasks, self.settings, np.array([self._task]), *state)

    def _begin(self) -> None:
        """Start an episode at the row (`Episodes.begin`)."""
        self._episodes().begin(np.zeros(1, np.int64))

    def _advance(self, action: int) -> tuple[float, bool]:
        """Take one step in place: (reward without a measured R, terminated), by `Episodes.step`."""
        rewards, ended = self._episodes().step(np.zeros(1, np.int64), np.array([action], np.int64))
        return float(rewards[0]), bool(ended[0])


class GirVectorEnv(EpisodesVectorEnv):
    """`num_envs` parallel schedules on one thread; each behaves like a `GirEnv` with the same arguments."""

    tasks: GirTasks
    single = GirEnv

    def __init__(self, num_envs: int = 1, *arguments: Any, **named: Any) -> None:
        """Take arguments of `GirEnv`, and `autoreset_mode` of `EpisodesVectorEnv`; ValueError names a bad value."""
        super().__init__(num_envs, *arguments, threads=1, **named)

    def _episodes(self) -> Episodes:
        return Episodes(self.tasks, self.settings, self._task, self._rows, self._scalars, self._masks, self._obs)

    def _begin_part(self, chosen: np.ndarray) -> None:
        """Start episodes of the chosen environments (`Episodes.begin`)."""
        self._episodes().begin(chosen)

    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        """Step environments low..high-1 that are not skipped (`Episodes.step`)."""
        chosen = np.flatnonzero(~skip[low:high]) + low
        self._rewards[low:high], self._ended[low:high] = 0.0, False
        self._rewards[chosen], self._ended[chosen] = self._episodes().step(chosen, actions[chosen])
