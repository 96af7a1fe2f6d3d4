"""The Gymnasium environment in which an agent constructs one tensor program, primitive by primitive."""

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
    A state is an operator with its partial schedule. A level that construction has not reached copies the tiles of the level
    inside it, so every state is a complete program. The process has a finite horizon: see `docs/design.md`.

    ## Action Space
    `Discrete(73)`: stop; tile and inverse_tile on eight axis slots; cache and inverse_cache; set_vthread and inverse_vthread on
    eight slots; raise and lower of every knob. `info["action_mask"]` (int8) and `action_masks()` (bool) give the legal actions:
    those that change the program and keep it within the limits. An illegal action changes nothing and costs its step. `stop` is
    always legal. `meaning(action)` describes an action.

    ## Observation Space
    `flat`: Box of float32; `dict`: the same features by group; `successors`: Box [actions, features] (see `env/views.py`);
    `graph`: `spaces.Graph` (see `env/graph_view.py`).

    ## Rewards
    A step pays discount * Phi(s') - Phi(s) - step_cost; `stop` pays R - Phi(s). Phi(s) is the log of the unscheduled program's
    latency over that of s, both by the model. R = max(0, log(T_cap / T)): T is the program's time by the `backend`, T_cap is 1000
    times the roofline floor. R is 0 if the status is not OK. `info["regret"]` at the end is log(T / T of the best program), if
    the backend is a complete recorded table, or the model with a certified optimum.

    `reward="best_so_far"`: `stop` evaluates the program, and the episode continues. It pays the gain in R over the best program
    evaluated before (all of R for the first), plus the reward of a step without a change. `info` has `paid_s` and `paid_status`
    of each evaluation. At the end `runtime_s`, `status` and `regret` describe the best program, `best` is its row int32 [60]
    (`env.graph.schedule(row)`), and `paid` is the number of evaluated programs. With discount 1 the return of an episode is R of
    the best program minus step_cost * steps. Observations do not show earlier evaluations.

    ## Starting State
    Every tile is 1, and the register level is under construction. `reset(options={"operator": .., "schedule": ..})` starts at any
    legal schedule.

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
        tasks = self.tasks
        process.begin_one(
            self._task, self._row, self._scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static, tasks.initial,
            tasks.starts, self._room, self._mask, self._obs,
        )  # fmt: skip

    def _advance(self, action: int) -> tuple[float, bool]:
        tasks = self.tasks
        done: tuple[float, bool] = process.step_one(
            self._task, self._row, self._scalars, action, tasks.ints, tasks.floats, tasks.sizes, self._vector,
            self._room, self._mask, self._obs,
        )  # fmt: skip
        return done

    def meaning(self, action: int) -> str:
        """Return the text of an action, such as `tile[4]`. ValueError if no action has this number."""
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"action {action!r} is none; they are 0 to {NUM_ACTIONS - 1}")
        return str(ACTIONS[action])
