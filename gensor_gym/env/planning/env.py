"""The Gymnasium environments of plans: `FuseEnv`, and its vector form `FuseVectorEnv`."""

from __future__ import annotations

from typing import Any

from gensor_gym import hardware as machines
from gensor_gym.env.episodes.stepped_envs import SteppedEnv, SteppedVectorEnv
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.planning.features import PlanView
from gensor_gym.env.planning.process import PlanEpisodes
from gensor_gym.env.planning.tasks import NetworkSpec, PlanTasks
from gensor_gym.env.settings import Settings, groups_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.planning.timed import plan_backend

DEFAULT_NETWORK = "normed(seed=0)"


class FuseEnv(SteppedEnv):
    """Plan a network's kernels, decision by decision.

    ## Description
    A state is a network with a plan, which says which nodes each kernel computes. The first plan has one kernel for each node.
    A cursor visits the links from nodes to their readers (`networks/planning/graph.py`), and each decision joins two pieces or
    leaves them apart. Every state is a complete plan: pieces stay apart until a decision joins them.

    ## Action Space
    `Discrete(6)`: stop; keep apart; join; make a panel; make a block; make a block with copies (`networks/planning/state.py`).
    `info["action_mask"]` (int8) and `action_masks()` (bool) give the legal actions; an illegal action changes nothing and costs
    its step.

    ## Observation Space
    `flat`: Box of float32; `dict`: its groups (plan, remaining, source, reader, decisions, hardware); `successors`: Box [actions,
    features]; `graph`: `spaces.Graph` of the network's nodes (`env/planning/graph_view.py`).

    ## Rewards
    A step pays discount * Phi(s') - Phi(s) - step_cost, and `stop` pays R - Phi(s), like in `gensor_gym/Construct-v0`. A plan's
    seconds are the sum of the seconds of its pieces by the models (`networks/fusion/prices.py`). `info` at the end has `plan`,
    the plan's text, and with the model as backend `regret`, relative to the proved optimum (`networks/fusion/best.py`). With
    `backend="cpu"` R is of the measured time of the whole network (`networks/planning/timed.py`): `runtime_s`, `status`.

    ## Starting State
    One kernel for each node.

    ## Episode End
    Terminated by `stop`, or at the horizon, where any action counts as `stop`. Never truncated.

    ## Arguments
    operator (a network, its graph or its text, a name such as `normed(seed=0)`, a list of these, or a part of the random
    networks: train, validation, test, unseen), hardware, backend (`analytic`, `cpu`), observation, observation_groups, discount,
    step_cost, shaping, seconds (to measure one plan), render_mode. Constants of networks without any are drawn to be measured.

    ## Version History
    v0: first version.
    """

    tasks: PlanTasks
    episodes = PlanEpisodes

    def __init__(
        self,
        operator: NetworkSpec = DEFAULT_NETWORK,
        hardware: Hardware | str = "host",
        backend: str = "analytic",
        observation: str = "flat",
        discount: float = 1.0,
        step_cost: float = 0.001,
        observation_groups: list[str] | None = None,
        shaping: bool = True,
        seconds: float = 60.0,
        render_mode: str | None = None,
    ) -> None:
        """Check the arguments and build the first task; ValueError names a bad value."""
        measured = backend != "analytic"
        timed = plan_backend(backend, machines.get(hardware), seconds) if measured else backend
        tasks = PlanTasks(operator, hardware, seed=0 if measured else None)
        final = FinalReward(timed, tasks.hardware, "pooled")
        settings = Settings(final.name, observation, groups_of(observation_groups), discount, step_cost, shaping, "pooled")
        super().__init__(tasks, final, settings, PlanView(settings), render_mode)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action, like `EpisodeEnv.step`; at the end `info` has the plan's text."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info | ({"plan": str(self.schedule)} if terminated else {})


class FuseVectorEnv(SteppedVectorEnv):
    """`num_envs` parallel plans on one thread; each behaves like a `FuseEnv` with the same arguments."""

    tasks: PlanTasks
    single = FuseEnv
