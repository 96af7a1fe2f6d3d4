"""The Gymnasium environment: one tensor program under construction."""

from __future__ import annotations

from gensor_gym.env import process
from gensor_gym.env.episodes.single import EpisodeEnv
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.settings import DEFAULT_OPERATOR, Settings, check_moves, groups_of
from gensor_gym.env.tasks import OperatorSpec, TaskSet
from gensor_gym.env.views import ObservationView
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.records.backend import warn_of_gap


class ConstructEnv(EpisodeEnv):
    """Construct a tensor program, primitive by primitive.

    ## Description
    A state is an operator with its partial schedule; levels not opened yet copy the one below, so every state is a complete
    program. The process is finite-horizon: see `docs/design.md`.

    ## Action Space
    `Discrete(73)`: stop; tile and inverse_tile on eight axis slots; cache and inverse_cache; set_vthread and inverse_vthread on
    eight slots; raise and lower of every knob. `info["action_mask"]` (int8) and `action_masks()` (bool) give the legal actions:
    those that change the program into one within the limits. An illegal action changes nothing and costs its step. `stop` is
    always legal. `meaning(action)` says what an action does.

    ## Observation Space
    `flat`: Box of float32, `dict`: its groups, `successors`: Box [actions, features] (see `env/views.py`), `graph`:
    `spaces.Graph` (see `env/graph_view.py`).

    ## Rewards
    discount * Phi(s') - Phi(s) - step_cost for a step; R - Phi(s) for `stop`, R = max(0, log(T_cap / T)), T_cap 1000 times the
    roofline floor, T the latency in the reward tier (`backend`), R = 0 when its status is not OK. With a complete recorded table,
    or a certified optimum of the model's tier, `info["regret"]` is log(T / T of the best) at the end.

    `reward="best_so_far"`: `stop` evaluates the program, and the episode goes on. The reward is the gain in R over the best
    program evaluated before (0 for none), plus that of a step without a change. `info` has `paid_s` and `paid_status` of each; at
    the end `runtime_s`, `status` and `regret` are those of the best, `best` is its row int32 [60] (`env.graph.schedule(row)`),
    `paid` the number of evaluated programs. With discount 1 an episode returns R of the best, less step_cost * steps. Earlier
    evaluations are not observed.

    ## Starting State
    Every tile 1, the register level under construction. `reset(options={"operator": .., "schedule": ..})` starts anywhere.

    ## Episode End
    Terminated by `stop`, or at the horizon, where any action counts as `stop`; with `reward="best_so_far"` only at the horizon.
    Never truncated.

    ## Arguments
    operator (Operator, text, id, split or list of these: one is drawn at each reset), hardware, backend, space, observation,
    observation_groups, discount, step_cost, shaping, timing, render_mode, moves (`"primitives"` alone), reward.

    ## Version History
    v0: first version.
    """

    def __init__(
        self,
        operator: OperatorSpec = DEFAULT_OPERATOR,
        hardware: Hardware | str = "host",
        backend: str | Backend = "analytic",
        space: str = "gensor",
        observation: str = "flat",
        discount: float = 1.0,
        step_cost: float = 0.001,
        timing: str = "pooled",
        observation_groups: list[str] | None = None,
        shaping: bool = True,
        render_mode: str | None = None,
        moves: str = "primitives",
        reward: str = "final",
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        check_moves(moves)
        tasks = TaskSet(operator, hardware, space)
        final = FinalReward(backend, tasks.hardware, timing)
        warn_of_gap(final.backend, tasks.operators, tasks.space)
        groups = groups_of(observation_groups)
        settings = Settings(final.name, observation, groups, discount, step_cost, shaping, timing, reward)
        super().__init__(tasks, final, settings, ObservationView(settings), render_mode)
        self.tasks: TaskSet = tasks
        self._room = tasks.room()

    def _begin(self) -> None:
        """See `process.begin`."""
        tasks = self.tasks
        process.begin_one(
            self._task, self._row, self._scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static, tasks.initial,
            tasks.starts, self._room, self._mask, self._obs,
        )  # fmt: skip

    def _advance(self, action: int) -> tuple[float, bool]:
        """See `process.advance`."""
        tasks = self.tasks
        done: tuple[float, bool] = process.step_one(
            self._task, self._row, self._scalars, action, tasks.ints, tasks.floats, tasks.sizes, self._vector,
            self._room, self._mask, self._obs,
        )  # fmt: skip
        return done

    def meaning(self, action: int) -> str:
        """The effect of an action on the current program as text, such as `tile[4]`; ValueError if there is no such action."""
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"action {action!r} is none; they are 0 to {NUM_ACTIONS - 1}")
        return str(ACTIONS[action])
