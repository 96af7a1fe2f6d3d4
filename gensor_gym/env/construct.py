"""The Gymnasium environment: one tensor program under construction."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from gensor_gym.env import process
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.observation import NUM_FEATURES
from gensor_gym.env.process import NUM_SCALARS, REMAINING, STEPS
from gensor_gym.env.settings import DEFAULT_OPERATOR, Settings, TextSpec
from gensor_gym.env.tasks import OperatorSpec, TaskSet
from gensor_gym.env.views import ObservationView
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware


class ConstructEnv(TextSpec, gymnasium.Env):
    """Construct a tensor program, primitive by primitive.

    ## Description
    A state is an operator with its partial schedule; levels not opened yet copy the one below, so every state is a
    complete program. The process is finite-horizon: see `docs/design.md`.

    ## Action Space
    `Discrete(73)`: stop; tile and inverse_tile on eight axis slots; cache and inverse_cache; set_vthread and
    inverse_vthread on eight slots; raise and lower of every knob. `info["action_mask"]` (int8) and `action_masks()`
    (bool) say what is legal; an illegal action changes nothing and costs its step. `stop` is always legal.

    ## Observation Space
    `flat`: Box of float32, `dict`: its groups, `successors`: Box [actions, features] (see `env/views.py`), `graph`:
    `spaces.Graph` (see `env/graph_view.py`).

    ## Rewards
    discount * Phi(s') - Phi(s) - step_cost for a step; R - Phi(s) for `stop`, R = max(0, log(T_cap / T)), T_cap 1000
    times the roofline floor, T the latency in the reward tier (`backend`), R = 0 when its status is not OK. With a complete
    recorded table, or a certified optimum of the model's tier, `info["regret"]` says at the end how far the program is from
    the best: log(T / T of the best).

    ## Starting State
    Every tile 1, the register level under construction. `reset(options={"operator": .., "schedule": ..})` starts anywhere.

    ## Episode End
    Terminated by `stop`, or at the horizon, where whatever is chosen counts as `stop`. Never truncated.

    ## Arguments
    operator (Operator, text, id, split or list of these: one is drawn at each reset), hardware, backend, space,
    observation, observation_groups, discount, step_cost, shaping, timing, render_mode.

    ## Version History
    v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(
        self,
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
    ) -> None:
        """Check the arguments and build the tasks; ValueError names a bad value."""
        check_render_mode(render_mode)
        self.tasks = TaskSet(operator, hardware, space)
        self.final = FinalReward(backend, self.tasks.hardware, timing)
        groups = tuple(observation_groups) if observation_groups is not None else None
        self.settings = Settings(self.final.name, observation, groups, discount, step_cost, shaping, timing)
        self.view = ObservationView(self.settings)
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = self.view.space
        self._vector = self.settings.vector()
        self._running = False
        self._room = self.tasks.room()
        self._task = 0
        self._row = self.tasks.initial[0].copy()
        self._scalars = np.zeros(NUM_SCALARS)
        self._mask = np.zeros(NUM_ACTIONS, dtype=np.int8)
        self._obs = np.zeros(NUM_FEATURES, dtype=np.float32)

    @property
    def discount(self) -> float:
        """The discount of the process; agents take gamma from here."""
        return self.settings.discount

    @property
    def graph(self) -> Any:
        """The construction graph of the current task."""
        return self.tasks.graphs[self._task]

    @property
    def schedule(self) -> Schedule:
        """The current schedule."""
        return Schedule(self._row)

    @property
    def remaining(self) -> int:
        """Steps left; with one left only `stop` is legal."""
        return int(self._scalars[REMAINING])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; options "operator" and "schedule" (Schedule or text) choose task and first state."""
        super().reset(seed=seed)
        if seed is not None:
            self.final.restart()
        task, row = starting_state(self.tasks, options, lambda: self.tasks.draw(lambda: self.np_random))
        self._running = True
        self._task = task
        self._row[:] = row
        process.begin_range(
            np.zeros(1, dtype=np.int64), np.array([task]), self._row[None], self._scalars[None], self.tasks.ints,
            self.tasks.floats, self.tasks.sizes, self.tasks.static, self.tasks.initial, self.tasks.starts, self._room,
            self._mask[None], self._obs[None],
        )  # fmt: skip
        return self._observation(), {"action_mask": self._mask.copy()}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply a primitive. Illegal actions never raise; ResetNeeded before `reset` and after the end of an episode."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() first")
        tasks = self.tasks
        reward, terminated = process.step_one(
            self._task, self._row, self._scalars, int(action), tasks.ints, tasks.floats, tasks.sizes, self._vector,
            self._room, self._mask, self._obs,
        )  # fmt: skip
        info: dict[str, Any] = {"action_mask": self._mask.copy()}
        if terminated:
            self._running = False
            gain, facts = self.final.of([self.graph], [self._row], [float(self._scalars[process.LATENCY])])[0]
            reward += gain
            info |= facts
            info["steps"] = int(self._scalars[STEPS])
        return self._observation(), float(reward), bool(terminated), False, info

    def action_masks(self) -> np.ndarray:
        """Legal actions, bool [N] (the name MaskablePPO looks for)."""
        return self._mask.astype(bool)

    def render(self) -> Any:
        """`ansi`: the loop nest as text; `rgb_array`: tiles, resources and roofline as an image uint8 [H, W, 3]."""
        if self.render_mode is None:
            return None
        from gensor_gym.env.pictures import render

        draw = render.as_text if self.render_mode == "ansi" else render.as_image
        return draw(self.graph, self.schedule)

    def close(self) -> None:
        """Stop workers, if any. May be called twice."""
        self.final.close()

    def _observation(self) -> Any:
        """The chosen view of the current features."""
        return self.view.single(self._obs, self.graph, self._row, self._mask)


def check_render_mode(render_mode: str | None) -> None:
    """ValueError names the modes there are."""
    modes = ConstructEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f"no render_mode {render_mode!r}; it is one of {modes} or None")


def starting_state(tasks: TaskSet, options: dict[str, Any] | None, draw: Any) -> tuple[int, np.ndarray]:
    """(task, row) that `reset` starts from; ValueError if the schedule is not legal for the operator."""
    options = options or {}
    unknown = set(options) - {"operator", "schedule", "reset_mask"}
    if unknown:
        raise ValueError(f"unknown reset options {sorted(unknown)}; accepted are 'operator', 'schedule', 'reset_mask'")
    task = draw()
    if options.get("operator") is not None:
        from gensor_gym import operators

        task = tasks.add(operators.resolve_one(options["operator"]))
    schedule = options.get("schedule")
    if schedule is None:
        return task, tasks.initial[task]
    schedule = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    if not isinstance(schedule, Schedule):
        raise ValueError(f"option schedule is {schedule!r}; it takes a Schedule or its text")
    if not tasks.graphs[task].is_legal(schedule):
        raise ValueError(f"{schedule!r} is not legal for {tasks.graphs[task].operator} in space {tasks.space!r}")
    return task, schedule.row
