"""Gymnasium environments of fused operators: `GirEnv`, and the vector environment `GirVectorEnv`."""

from __future__ import annotations

from gensor_gym.env.episodes.stepped_envs import SteppedEnv, SteppedVectorEnv
from gensor_gym.env.fused.observation import GirView
from gensor_gym.env.fused.process import Episodes
from gensor_gym.env.fused.tasks import FusedSpec, GirTasks
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.settings import Settings, groups_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend

DEFAULT_FUSED = "softmax(m=1536, n=128)"


class GirEnv(SteppedEnv):
    """Schedule a fused memory-bound operator, primitive by primitive.

    ## Description
    A state is a dataflow graph (elementwise maps, reductions, data movement) with a complete schedule of its loops over rows and
    columns: five settings (vector, tile, rows, loop, streaming), and a level of memory for every value that several passes over
    the columns read. The space follows IntelliGen (arXiv 2307.04995).

    ## Action Space
    `Discrete(75)`: stop; raise and lower of each of the five settings; place of each of 16 values at DRAM, RECOMPUTE, SRAM, REG.
    `info["action_mask"]` (int8) and `action_masks()` (bool) give the legal actions; an illegal action changes nothing and costs
    its step.

    ## Observation Space
    `flat`: Box of float32; `dict`: its groups (header: the five settings; placement, speed, terms, remaining, nest, cells);
    `successors`: Box [actions, features]; `graph`: `spaces.Graph` of the operator's values (`env/fused/graph_view.py`).

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
    episodes = Episodes

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


class GirVectorEnv(SteppedVectorEnv):
    """Vector environment of `num_envs` fused operators, on one thread. Each behaves like a `GirEnv` with the same arguments."""

    tasks: GirTasks
    single = GirEnv
