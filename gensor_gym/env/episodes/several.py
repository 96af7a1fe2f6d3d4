"""Base class of the vector environments: parallel episodes, resets, infos, random streams, threads."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gensor_gym.env.episodes import best
from gensor_gym.env.episodes.scalars import LATENCY, NUM_SCALARS, PAID, REMAINING, START_LATENCY, STEPS
from gensor_gym.env.episodes.single import EpisodeEnv, starting_state
from gensor_gym.env.episodes.streams import Streams
from gensor_gym.env.settings import TextSpec
from gensor_gym.graph.actions import STOP
from gensor_gym.hardware.cpuinfo import forced_threads
from gensor_gym.registry import check_known

ALL = slice(None)
_EPISODES = ("_task", "_rows", "_best", "_scalars", "_masks", "_obs", "_over")
"""Names of the attributes that together are the state of the running episodes."""
FEWEST_PER_THREAD = 128
"""Number of environments from which on a thread is worth its cost."""


class EpisodesVectorEnv(TextSpec, gymnasium.vector.VectorEnv, ABC):
    """Base class of the vector environments, which run `num_envs` episodes in parallel.

    Each episode behaves like an environment of class `single` with the same arguments. Environment i is seeded with seed + i.
    `autoreset_mode` is NEXT_STEP (Gymnasium's default), SAME_STEP (`final_obs` and `final_info` in infos) or DISABLED (reset with
    `options={"reset_mask": bool [num_envs]}`). `threads` defaults to GENSOR_GYM_THREADS or else the usable cores. Subclasses set
    `single`, and implement reset and step for a range of the episodes.
    """

    metadata: dict[str, Any] = EpisodeEnv.metadata | {"autoreset_mode": AutoresetMode.NEXT_STEP}
    single: Callable[..., EpisodeEnv]

    def __init__(
        self,
        num_envs: int = 1,
        *arguments: Any,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        **named: Any,
    ) -> None:
        """Allocate the episodes. ValueError names a bad value.

        `arguments` and `named` are the positional and keyword arguments of the single environment.
        """
        one = type(self).single(*arguments, **named)
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs is {num_envs!r}; it takes an integer, 1 or more")
        self.tasks, self.final, self.settings, self.view = one.tasks, one.final, one.settings, one.view
        self._vector = one._vector
        self.num_envs = num_envs
        check_known("autoreset_mode", getattr(autoreset_mode, "value", autoreset_mode), [mode.value for mode in AutoresetMode])
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = one.metadata | {"autoreset_mode": self.autoreset_mode}
        self.render_mode = one.render_mode
        self.single_action_space = one.action_space
        self.single_observation_space = one.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._threads = _thread_count(threads)
        self._pool: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        """Id of the process that started the pool's threads: a forked process does not have them."""
        self._allocate()

    @abstractmethod
    def _begin_part(self, chosen: np.ndarray) -> None:
        """Write scalars, masks and features of the chosen environments. Their tasks and first rows are set already."""

    @abstractmethod
    def _step_part(self, low: int, high: int, actions: np.ndarray, skip: np.ndarray) -> None:
        """Step environments low..high-1 in place. Those with `skip` set stay unchanged and get reward 0."""

    def _allocate(self) -> None:
        count = self.num_envs
        self._streams = Streams(count)
        self._task = np.zeros(count, dtype=np.int64)
        self._rows = np.repeat(self.tasks.initial[:1], count, axis=0)
        self._best = self._rows.copy()
        self._scalars = np.zeros((count, NUM_SCALARS))
        self._masks = np.zeros((count, self.tasks.num_actions), dtype=np.int8)
        self._obs = np.zeros((count, self.tasks.num_features), dtype=np.float32)
        self._rewards = np.zeros(count)
        self._ended = np.zeros(count, dtype=np.bool_)
        self._over = np.zeros(count, dtype=np.bool_)

    @property
    def discount(self) -> float:
        """Discount of the process; agents take gamma from here."""
        return self.settings.discount

    @property
    def rows(self) -> np.ndarray:
        """Current schedule of every environment, encoded as a row int32 [B, R]. The array changes at the next step."""
        return self._rows

    @property
    def task_indices(self) -> np.ndarray:
        """Index into `tasks` of the task that each environment runs, int64 [B]. The array changes at the next reset."""
        return self._task

    @property
    def schedules(self) -> list[Any]:
        """Current schedule of every environment, as a list of schedule objects."""
        return [graph.schedule(row) for graph, row in zip(self.graphs, self._rows, strict=True)]

    @property
    def graphs(self) -> list[Any]:
        """Construction graph of every environment's current task."""
        return [self.tasks.graphs[task] for task in self._task]

    @property
    def remaining(self) -> np.ndarray:
        """Number of steps left in every environment, int64 [B]."""
        return self._scalars[:, REMAINING].astype(np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start all episodes, or only those that options["reset_mask"], bool [B], selects; return (observations, infos).

        Other options are those of `EpisodeEnv.reset`. An integer `seed` seeds environment i with seed + i; a list has a seed or
        None for each environment. ValueError for a list of another length.
        """
        seeds = (
            [None if seed is None else seed + i for i in range(self.num_envs)] if not isinstance(seed, list) else seed
        )
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        chosen = self._chosen(options)
        if any(seeds[i] is not None for i in chosen):
            self.final.restart()
        for i in chosen:
            if seeds[i] is not None:
                self._streams.seed(i, seeds[i])
        self._begin(chosen, options)
        return self._observation(), self._masks_info(np.isin(np.arange(self.num_envs), chosen))

    def _chosen(self, options: dict[str, Any] | None) -> np.ndarray:
        """Return the indices of the environments to reset: those that `reset_mask` selects, or all if there is no mask.

        ValueError if the mask is not bool [B] with at least one True.
        """
        if not options or "reset_mask" not in options:
            return np.arange(self.num_envs)
        mask = options["reset_mask"]
        if (
            not isinstance(mask, np.ndarray)
            or mask.dtype != np.bool_
            or mask.shape != (self.num_envs,)
            or not mask.any()
        ):
            raise ValueError(
                f"reset_mask must be a bool array of shape ({self.num_envs},) with some True, got {mask!r}"
            )
        return np.flatnonzero(mask)

    def _begin(self, chosen: np.ndarray, options: dict[str, Any] | None) -> None:
        tasks = self.tasks
        if options:
            for i in chosen:
                self._task[i], self._rows[i] = starting_state(tasks, options, functools.partial(self._draw, i))
        else:
            self._task[chosen] = [self._draw(i) for i in chosen]
            self._rows[chosen] = tasks.initial[self._task[chosen]]
        self._over[chosen] = False
        self._in_parts(len(chosen), lambda low, high: self._begin_part(chosen[low:high]))

    def _draw(self, index: int) -> int:
        return self.tasks.draw(lambda: self._streams.of(index))

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action per environment, integers [B], like `gymnasium.vector.VectorEnv.step`.

        Rewards are float64 [B]; truncations are always False. ResetNeeded before `reset`. ValueError for actions of another shape
        or type, and if an episode has ended while autoreset is disabled.
        """
        if self._scalars[0, START_LATENCY] == 0.0:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() first")
        actions = np.asarray(actions)
        if actions.dtype.kind not in "iu":
            raise ValueError(f"actions of {actions.dtype}: expected whole numbers")
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions of shape {actions.shape} for {self.num_envs} environments")
        actions = np.ascontiguousarray(actions, np.int64)  # Numba would compile the step again for another layout
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise ValueError(
                f"environments {np.flatnonzero(self._over).tolist()} have ended; reset them with options['reset_mask']"
            )
        skip = self._over.copy()
        observed = self._advance(actions, skip)
        if skip.any():
            self._begin(np.flatnonzero(skip), None)
            observed[skip] = self._obs[skip]
        told = self._paid(np.flatnonzero(~skip & ((actions == STOP) | self._ended))) if self.settings.goes_on else {}
        info = told | self._final_facts(np.flatnonzero(self._ended), told)
        self._over = self._ended.copy()
        rewards, ended = self._rewards.copy(), self._ended.copy()
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            info = told | self._reset_in_step(ended, info)
            observed[ended] = self._obs[ended]
        info |= self._masks_info(np.ones(self.num_envs, dtype=np.bool_))
        return self._view(ALL, observed), rewards, ended, np.zeros(self.num_envs, dtype=np.bool_), info

    def _advance(self, actions: np.ndarray, skip: np.ndarray) -> np.ndarray:
        """Take one action in each environment, and return a copy of the features, made before any automatic reset."""
        observed = np.empty_like(self._obs)

        def step_part(low: int, high: int) -> None:
            self._step_part(low, high, actions, skip)
            observed[low:high] = self._obs[low:high]

        self._in_parts(self.num_envs, step_part)
        return observed

    def _in_parts(self, count: int, work: Callable[[int, int], None]) -> None:
        """Call `work(low, high)` on ranges that together make range(count), one per thread."""
        parts = max(1, min(self._threads, count // FEWEST_PER_THREAD))
        if parts == 1:
            work(0, count)
            return
        if self._pool is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="gensor_gym")
        edges = np.linspace(0, count, parts + 1).astype(int)
        others = [self._pool.submit(work, low, high) for low, high in zip(edges[1:-1], edges[2:], strict=True)]
        work(edges[0], edges[1])
        for other in others:
            other.result()

    def _paid(self, chosen: np.ndarray) -> dict[str, Any]:
        """Evaluate the programs of the chosen environments for `best_so_far`; return times and statuses as an info dictionary."""
        if len(chosen) == 0:
            return {}
        graphs = [self.tasks.graphs[task] for task in self._task[chosen]]
        paid = best.pay(self.final, chosen, graphs, self._rows, self._scalars, self._best)
        self._rewards[chosen] += paid.gains
        return self._spread(chosen, {"paid_s": (paid.seconds, 0.0), "paid_status": (paid.statuses, None)})

    def _final_facts(self, ended: np.ndarray, told: dict[str, Any]) -> dict[str, Any]:
        """Add measured final rewards R to the rewards of ended episodes; return runtime, status and steps as an info dictionary.

        `told` has the evaluations of this step if `reward` is `best_so_far`.
        """
        if len(ended) == 0:
            return {}
        graphs = [self.tasks.graphs[self._task[i]] for i in ended]
        if self.settings.goes_on:
            each = zip(graphs, self._scalars[ended], self._best[ended], told["paid_status"][ended], strict=True)
            facts = [best.facts_of_best(self.final, *one) for one in each]
        else:
            outcomes = self.final.of(graphs, [self._rows[i] for i in ended], self._scalars[ended, LATENCY].tolist())
            self._rewards[ended] += [gain for gain, _ in outcomes]
            facts = [fact for _, fact in outcomes]
        columns = {name: ([fact[name] for fact in facts], empty) for name, empty in (("runtime_s", 0.0), ("status", None))}
        if any("samples" in fact for fact in facts):
            columns["samples"] = [fact.get("samples", 0) for fact in facts], 0
        columns["steps"] = self._scalars[ended, STEPS].astype(np.int64), 0
        if self.settings.goes_on:
            columns |= {"paid": (self._scalars[ended, PAID].astype(np.int64), 0), "best": (self._best[ended], 0)}
        named = self._spread(ended, columns)
        regret = np.full(self.num_envs, np.nan)
        regret[ended] = [fact.get("regret", np.nan) for fact in facts]
        return named | ({} if np.isnan(regret).all() else {"regret": regret, "_regret": ~np.isnan(regret)})

    def _spread(self, chosen: np.ndarray, columns: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
        """Return an info dictionary with arrays of one entry per environment, and Gymnasium's masks `_name` of the chosen ones.

        `columns` maps a name to (values of the chosen environments [N, ..], filler for all others).
        """
        present, found = np.zeros(self.num_envs, dtype=np.bool_), dict[str, Any]()
        present[chosen] = True
        for name, (values, empty) in columns.items():
            values = np.array(values, dtype=object if empty is None else None)
            found[name] = np.full((self.num_envs, *values.shape[1:]), empty, dtype=values.dtype)
            found[name][chosen] = values
        return found | {f"_{name}": present.copy() for name in columns}

    def _reset_in_step(self, ended: np.ndarray, facts: dict[str, Any]) -> dict[str, Any]:
        """Reset the ended episodes, and return `final_obs` and `final_info`, which describe them."""
        chosen = np.flatnonzero(ended)
        last = self._observation(chosen)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for at, i in enumerate(chosen):
            final_obs[i] = {k: v[at] for k, v in last.items()} if isinstance(last, dict) else last[at]
        final_info = facts | {"action_mask": self._masks.copy(), "_action_mask": ended.copy()}
        self._begin(chosen, None)
        self._over[:] = False
        return {
            "final_obs": final_obs,
            "_final_obs": ended.copy(),
            "final_info": final_info,
            "_final_info": ended.copy(),
        }

    def _masks_info(self, present: np.ndarray) -> dict[str, Any]:
        """Return the action masks as an info dictionary. `present` bool [B] says which environments have a mask."""
        return {"action_mask": self._masks.copy(), "_action_mask": present}

    def action_masks(self) -> np.ndarray:
        """Return the masks of legal actions, bool [B, N]."""
        return self._masks.astype(bool)

    def _observation(self, chosen: np.ndarray | slice = ALL) -> Any:
        return self._view(chosen, self._obs[chosen].copy())

    def _view(self, chosen: np.ndarray | slice, features: np.ndarray) -> Any:
        """Turn features into the observations of the chosen environments.

        The result may be the array `features` itself, so the caller must not use that array again.
        """
        if self.settings.observation in ("flat", "dict"):
            return self.view.batch(features)
        graphs = [self.tasks.graphs[task] for task in self._task[chosen]]
        states = zip(features, graphs, self._rows[chosen], self._masks[chosen], strict=True)
        views = tuple(self.view.single(*state) for state in states)
        return views if self.settings.observation == "graph" else np.stack(views)

    def state(self) -> dict[str, Any]:
        """Return a copy of the running episodes and the random streams, for `restore`.

        The copy lacks two things: measurements that the environment keeps in memory, and the position of a recorded backend in
        its random noise.
        """
        return {"streams": self._streams.state()} | {name: getattr(self, name).copy() for name in _EPISODES}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`, which an environment with the same arguments returned.

        ValueError for another number of environments or for tasks that this environment lacks.
        """
        if len(state["streams"]) != self.num_envs or state["_task"].max() >= len(self.tasks.graphs):
            raise ValueError(
                f"state of {len(state['streams'])} environments and {state['_task'].max() + 1} tasks or more; these are "
                f"{self.num_envs} environments and {len(self.tasks.graphs)} tasks"
            )
        for name in _EPISODES:
            getattr(self, name)[:] = state[name]
        self._streams.restore(state["streams"])

    def render(self) -> tuple[Any, ...] | None:
        """Return one rendered frame per environment (`EpisodeEnv.render`); None without a render mode."""
        if self.render_mode is None:
            return None
        draw = self.view.drawn(self.render_mode)
        return tuple(draw(graph, schedule) for graph, schedule in zip(self.graphs, self.schedules, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copy, without the threads, which start again when needed."""
        return self.__dict__ | {"_pool": None}

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads and the backend's workers."""
        if self._pool is not None and self._owner == os.getpid():
            self._pool.shutdown()
        self._pool = None
        self.final.close()


def _thread_count(threads: int | None) -> int:
    """Return the number of threads to use. ValueError if `threads` is below 1."""
    if threads is not None and (not isinstance(threads, int | np.integer) or threads < 1):
        raise ValueError(f"threads is {threads!r}; it takes an integer, 1 or more, or None")
    return threads or forced_threads() or len(os.sched_getaffinity(0))
