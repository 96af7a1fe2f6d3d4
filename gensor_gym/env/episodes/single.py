"""Base class of the single environments: drawing of tasks, reset and step, rewards, infos."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gensor_gym.env.episodes import best
from gensor_gym.env.episodes.scalars import LATENCY, NUM_SCALARS, REMAINING, STEPS
from gensor_gym.env.measured import FinalReward
from gensor_gym.env.settings import Settings, TextSpec, whole
from gensor_gym.env.tasks import Tasks
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.compiling.early import at_once


class EpisodeEnv(TextSpec, gymnasium.Env, ABC):
    """Base class of single environments in which a state is a schedule, encoded as a row of integers.

    Subclasses build the tasks, and implement `_begin` and `_advance` on rows.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(self, tasks: Tasks, final: FinalReward, settings: Settings, view: Any, render_mode: str | None) -> None:
        """Allocate one episode. ValueError names an unknown render mode.

        `view` turns the features of a state into observations; `final` computes the final reward.
        """
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.tasks, self.final, self.settings, self.view, self.render_mode = tasks, final, settings, view, render_mode
        self.action_space = gymnasium.spaces.Discrete(tasks.num_actions)
        self.observation_space = view.space
        self._vector = settings.vector()
        """The settings as an array of numbers, which the compiled process reads."""
        self._running = False
        self._task = 0
        self._row = tasks.initial[0].copy()
        self._best = tasks.initial[0].copy()
        self._scalars = np.zeros(NUM_SCALARS)
        self._mask = np.zeros(tasks.num_actions, dtype=np.int8)
        self._obs = np.zeros(tasks.num_features, dtype=np.float32)

    @abstractmethod
    def _begin(self) -> None:
        """Write the scalars, mask and features of an episode's first state. The task and the row are set already."""

    @abstractmethod
    def _advance(self, action: int) -> tuple[float, bool]:
        """Take one step in place; return (reward, without R if the backend measures it, and whether the episode ended)."""

    @property
    def discount(self) -> float:
        """Discount of the process; agents take gamma from here."""
        return self.settings.discount

    @property
    def running(self) -> bool:
        """Whether an episode is running: it began, and has not ended."""
        return self._running

    @property
    def graph(self) -> Any:
        """Construction graph of the current task."""
        return self.tasks.graphs[self._task]

    @property
    def schedule(self) -> Any:
        """The current schedule."""
        return self.graph.schedule(self._row)

    @property
    def remaining(self) -> int:
        """Number of steps left; with one left only `stop` is legal."""
        return int(self._scalars[REMAINING])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and return (observation, info).

        The options "operator" and "schedule" (a schedule or its text) choose the task and the first state.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.final.restart()
        task, row = starting_state(self.tasks, options, lambda: self.tasks.draw(lambda: self.np_random))
        self._running = True
        self._task = task
        self._row[:] = row
        self._begin()
        return self._observation(), {"action_mask": self._mask.copy()}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action, like `gymnasium.Env.step`.

        ResetNeeded if no episode is running, ValueError if the action is not an integer. An illegal action never raises, not even
        a number outside the action space.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() first")
        reward, terminated = self._advance(whole(action))
        info: dict[str, Any] = {"action_mask": self._mask.copy()}
        self._running = not terminated
        if terminated or (self.settings.goes_on and action == STOP):
            gain, facts = self._paid(terminated)
            reward += gain
            info |= facts
        return self._observation(), float(reward), bool(terminated), False, info

    def _paid(self, terminated: bool) -> tuple[float, dict[str, Any]]:
        """Evaluate the current program; return (amount to add to the reward, entries of `info`)."""
        graph, row, scalars = self.graph, self._row, self._scalars
        if not self.settings.goes_on:
            gain, facts = self.final.of([graph], [row], [float(scalars[LATENCY])])[0]
            return gain, facts | {"steps": int(scalars[STEPS])}
        gains, seconds, statuses = best.pay(
            self.final, np.zeros(1, np.int64), [graph], row[None], scalars[None], self._best[None]
        )
        facts = {"paid_s": float(seconds[0]), "paid_status": statuses[0]}
        if terminated:
            facts |= best.facts_of_best(self.final, graph, scalars, self._best, statuses[0])
        return float(gains[0]), facts

    def action_masks(self) -> np.ndarray:
        """Return the mask of legal actions, bool [N]. The name is the one that MaskablePPO looks for."""
        return self._mask.astype(bool)

    def render(self) -> Any:
        """Return the program as text (render mode `ansi`) or as an image uint8 [H, W, 3] (`rgb_array`).

        None without a render mode.
        """
        if self.render_mode is None:
            return None
        with at_once():
            return self.view.drawn(self.render_mode)(self.graph, self.schedule)

    def close(self) -> None:
        """Stop the backend's workers, if any run."""
        self.final.close()

    def _observation(self) -> Any:
        return self.view.single(self._obs, self.graph, self._row, self._mask)


def check_render_mode(render_mode: str | None, modes: list[str]) -> None:
    """Raise ValueError unless the render mode is None or one of `modes`."""
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f"no render_mode {render_mode!r}; it is one of {modes} or None")


def starting_state(tasks: Tasks, options: dict[str, Any] | None, draw: Callable[[], int]) -> tuple[int, np.ndarray]:
    """Return (index of the task, first row) of a new episode.

    The options "operator" and "schedule" of `reset` choose them. Without "operator", `draw` returns the index; without
    "schedule", the row is the task's unscheduled program. ValueError for an unknown option, or if the schedule is not legal for
    the operator.
    """
    options = options or {}
    unknown = set(options) - {"operator", "schedule", "reset_mask"}
    if unknown:
        raise ValueError(f"unknown reset options {sorted(unknown)}; accepted are 'operator', 'schedule', 'reset_mask'")
    task = draw()
    if options.get("operator") is not None:
        task = tasks.add(options["operator"])
    schedule = options.get("schedule")
    if schedule is None:
        return task, tasks.initial[task]
    if not tasks.starts_anywhere:
        raise ValueError(f"option schedule is {schedule!r}; this environment begins with nothing written")
    graph: Any = tasks.graphs[task]
    schedule = graph.parse(schedule) if isinstance(schedule, str) else schedule
    if not isinstance(schedule, type(graph.initial())):
        raise ValueError(f"option schedule is {schedule!r}; it takes a {type(graph.initial()).__name__} or its text")
    with at_once():
        legal = graph.is_legal(schedule)
    if not legal:
        raise ValueError(f"{schedule!r} is not legal for {tasks.graphs[task].operator} in space {tasks.space!r}")
    return task, schedule.row
