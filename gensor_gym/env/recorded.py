"""The Gymnasium environment of a tuning space that was measured completely, so that its optimum is known."""

from __future__ import annotations

import math
import os
from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from gensor_gym.env.settings import TextSpec, check_process, whole
from gensor_gym.spaces.files import load_space
from gensor_gym.spaces.moves import STOP, Moves, moves_of
from gensor_gym.spaces.space import TIMINGS, TuningSpace

NUM_FACTS = 6
"""Number of features between the indices of values and the mask in the observation of `RecordedEnv`."""
CLIP = 8.0


class RecordedEnv(TextSpec, gymnasium.Env):
    """Move through a tuning space that was measured completely, to find its best configuration.

    ## Description
    A state is a configuration, the fastest configuration visited so far (the incumbent), and the steps and seconds left. To
    measure a visited configuration is to look up its recorded time, which stays the same within the episode.

    ## Action Space
    `Discrete(2 + 2M)`: stop; jump, which is legal if moves do not connect the space; up and down for each of the M parameters
    with more than one value (`env.unwrapped.moves.names`). `info["action_mask"]` (int8) and `action_masks()` (bool) give the
    legal actions; an illegal action changes nothing and costs its step. `stop` is always legal.

    ## Observation Space
    Box float32 [2M + 6 + 2 + 2M]: index of each of the M parameter values, scaled to [0, 1]; the same for the incumbent; whether
    the configuration succeeded, whether there is an incumbent, log(T_cap / T) of both (0 if not), the fractions left of steps and
    seconds; the mask.

    ## Rewards
    A step pays discount * Phi(s') - Phi(s) - step_cost and `stop` pays R - Phi(s), like in `gensor_gym/Construct-v0`. Here T is
    the incumbent's time and T_cap the slowest recorded time: R = max(0, log(T_cap / T)), Phi(s) = log(T(s0) / T(s)). T is T_cap
    and R is 0 while no configuration has succeeded. R uses the recorded time, even if `timing="resample"` showed a shorter one.

    ## Starting State
    Any configuration, each equally likely; `reset(options={"configuration": {...}})` starts anywhere.

    ## Episode End
    Terminated by `stop`, and by any action with one step left or when the seconds are spent.

    ## Arguments
    path (a Kernel Tuner cache or a T4 file) or a TuningSpace, format and unit of `load_space`; timing: `reported`, `median` (of
    the raw samples), or `resample` (one raw sample, drawn again in every episode; the recorded time is then the reported time);
    seconds: budget of recorded compile and run time, None for no limit; horizon, discount, step_cost, shaping, render_mode.

    ## Version History
    v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self,
        path: str | os.PathLike[str] | TuningSpace,
        format: str = "auto",
        timing: str = "reported",
        unit: str | None = None,
        seconds: float | None = None,
        horizon: int | None = None,
        discount: float = 1.0,
        step_cost: float = 0.001,
        shaping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Read the file of the tuning space, and list the actions. ValueError names a bad value."""
        check_process(discount, step_cost)
        check_arguments(timing, seconds, horizon, render_mode)
        self.space = path if isinstance(path, TuningSpace) else load_space(path, format, unit)
        self.timing, self.discount, self.step_cost, self.shaping = timing, discount, step_cost, shaping
        self.budget, self.render_mode = seconds, render_mode
        self._statistic = "reported" if timing == "resample" else timing
        self.seconds = self.space.seconds(self._statistic)
        self.best = self.space.best(self._statistic)
        self.cap = float(self.seconds[self.space.ok].max())
        """T_cap in seconds."""
        if timing == "resample":
            check_samples(self.space)
        self.moves = moves_of(self.space)
        self.horizon = self.moves.horizon if horizon is None else horizon
        self.action_space = gymnasium.spaces.Discrete(self.moves.number)
        self._features = 2 * len(self.moves.movable) + NUM_FACTS + self.moves.number
        self.observation_space = gymnasium.spaces.Box(-CLIP, CLIP, (self._features,), np.float32)
        self._places = places(self.space, self.moves)
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode, and return (observation, info). Option "configuration" (values by parameter) chooses the first state.

        The observation is float32 [2M + 6 + 2 + 2M]. ValueError for other options, and for a configuration that is not recorded.
        """
        super().reset(seed=seed)
        unknown = set(options or {}) - {"configuration"}
        if unknown:
            raise ValueError(f"unknown reset options {sorted(unknown)}; accepted is 'configuration'")
        wanted = (options or {}).get("configuration")
        self.index = int(self.np_random.integers(len(self.space))) if wanted is None else self.space.index(wanted)
        self.remaining, self.steps, self.spent = self.horizon, 0, 0.0
        self._seen: dict[int, float] = {}
        self.incumbent: int | None = None
        self._time = math.inf
        self._running = True
        self._measure()
        self._start = self._time
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one action, like `gymnasium.Env.step`.

        ResetNeeded if no episode is running, ValueError if the action is not an integer. An illegal action never raises.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() first")
        action, before = whole(action), self._potential()
        forced = self._only_stop()
        self.remaining -= 1
        if forced or action == STOP:
            self._running = False
            info = self._info() | {"steps": self.steps, "best_s": float(self.seconds[self.best])}
            return self._observation(), float(self._final() - before), True, False, info
        self.steps += 1
        self.index = self.moves.successor(self.index, action)
        self._measure()
        reward = self.discount * self._potential() - before - self.step_cost
        return self._observation(), float(reward), False, False, self._info()

    def _measure(self) -> None:
        """Look up the time of the current configuration. Its first visit in an episode costs the recorded seconds."""
        if self.index in self._seen:
            return
        self.spent += float(self.space.charges[self.index])
        found = math.inf
        if self.space.ok[self.index]:
            draw = self.timing == "resample"
            found = float(self.np_random.choice(self.space.samples[self.index]) if draw else self.seconds[self.index])
        self._seen[self.index] = found
        if found < self._time:
            self.incumbent, self._time = self.index, found

    def _potential(self) -> float:
        """Return the potential Phi of the state; 0 without shaping."""
        capped = [self.cap if t == math.inf else t for t in (self._start, self._time)]
        return math.log(capped[0] / capped[1]) if self.shaping else 0.0

    def _final(self) -> float:
        """Return the final reward R, from the recorded time of the incumbent."""
        return 0.0 if self.incumbent is None else max(0.0, math.log(self.cap / float(self.seconds[self.incumbent])))

    def _only_stop(self) -> bool:
        return not self._running or self.remaining <= 1 or (self.budget is not None and self.spent >= self.budget)

    def action_masks(self) -> np.ndarray:
        """Return the mask of legal actions, bool [A]. The name is the one that MaskablePPO looks for."""
        if self._only_stop():
            return np.arange(self.moves.number) == STOP
        return self.moves.mask(self.index)

    def _observation(self) -> np.ndarray:
        now = self._seen[self.index]
        gains = [0.0 if t == math.inf else max(-CLIP, min(CLIP, math.log(self.cap / t))) for t in (now, self._time)]
        left = 1.0 if self.budget is None else max(0.0, 1.0 - self.spent / self.budget)
        found, movable = np.zeros(self._features, np.float32), self._places.shape[1]
        found[:movable] = self._places[self.index]
        if self.incumbent is not None:
            found[movable : 2 * movable] = self._places[self.incumbent]
        facts = (now < math.inf, self.incumbent is not None, *gains, max(0, self.remaining) / self.horizon, left)
        found[2 * movable : 2 * movable + NUM_FACTS] = facts
        found[2 * movable + NUM_FACTS :] = self.action_masks()
        return found

    def _info(self) -> dict[str, Any]:
        best = self.incumbent
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "status": self.space.status[self.index].value,
            "seconds": self._seen[self.index],
            "runtime_s": math.inf if best is None else float(self.seconds[best]),
            "regret": math.inf if best is None else self.space.regret(best, self._statistic),
            "in_optimal_set": best is not None and bool(self.space.optimal(self._statistic)[best]),
            "spent_s": self.spent,
        }

    def render(self) -> str | None:
        """Return text with the configuration, its time and the incumbent's time; None without render mode `ansi`."""
        if self.render_mode is None:
            return None
        if not hasattr(self, "index"):
            raise gymnasium.error.ResetNeeded("nothing to render: call reset() first")
        values = ", ".join(f"{name}={value}" for name, value in self.space.configuration(self.index).items())
        now = self._seen[self.index]
        time = f"{now * 1e3:.4g} ms" if now < math.inf else self.space.status[self.index].value
        return f"{values}: {time}; best so far {self._time * 1e3:.4g} ms of {self.seconds[self.best] * 1e3:.4g} ms"


def check_arguments(timing: str, seconds: float | None, horizon: int | None, render_mode: str | None) -> None:
    """Raise ValueError, with the accepted values, for a bad argument."""
    if timing not in (*TIMINGS, "resample"):
        raise ValueError(f"no timing {timing!r}; it is one of {(*TIMINGS, 'resample')}")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, Real) or not seconds > 0):
        raise ValueError(f"seconds is {seconds!r}; it takes a number above 0 or None")
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1):
        raise ValueError(f"horizon is {horizon!r}; it takes an integer, 1 or more, or None")
    if render_mode not in (None, "ansi"):
        raise ValueError(f"no render_mode {render_mode!r}; it is 'ansi' or None")


def check_samples(space: TuningSpace) -> None:
    """Raise ValueError unless every successful configuration has raw samples, which `timing="resample"` draws from."""
    lacking = sum(len(s) == 0 for s, ok in zip(space.samples, space.ok, strict=True) if ok)
    if lacking:
        raise ValueError(
            f"timing='resample' draws raw samples; {space.source} has none for {lacking} of {int(space.ok.sum())} "
            f"configurations that ran well, so timing is one of {TIMINGS}"
        )


def places(space: TuningSpace, moves: Moves) -> np.ndarray:
    """Return the parameter values of all configurations as numbers in [0, 1], float64 [N, M].

    A number is the index of the value among those of its parameter, divided by the largest index. N is the number of
    configurations, M the number of parameters with more than one value.
    """
    counts = np.array([len(space.parameters[i].values) for i in moves.movable])
    return space.indices[:, moves.movable] / np.maximum(1, counts - 1)
