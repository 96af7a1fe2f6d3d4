"""One training of an agent, which is then tested on operators that it was not trained on.

A class of stable-baselines3 learns until its processor time is spent, and records a curve. A stopped training restarts.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from agents import get_strategy
from agents.runs.settings import code_digest, short_hash
from experiments.studies.study import evenly
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.exact.shipped import certificates_of
from gensor_gym.fingerprint import common, fingerprints

if TYPE_CHECKING:
    from gensor_gym.env.sb3 import ConstructVecEnv

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function that chooses actions: (observations [B, O], masks bool [B, N]) -> actions [B]."""
GROUNDS = {"primitives": "make_sb3", "writing": "make_writing_sb3"}
"""Environment -> name of the function of `gensor_gym.env.sb3` that makes it."""
CLASSES: dict[str, Any] = {"PPO": PPO, "MaskablePPO": MaskablePPO, "DQN": DQN}
POINTS = 60
"""Number of points of a learning curve.

Each point has processor seconds, steps and episodes so far, and, since the last point, the mean regret and length of episodes and
the share of illegal steps.
"""
FOREVER = 1 << 40


@cache
def operators_of(
    trained: str, tested: str, most_values: int, most_tested: int | None, hardware: str, space: str
) -> tuple[tuple[str, ...], ...]:
    """Return (training operators, test operators, left-out test operators) as texts, the same for both environments.

    A column is a part of a schedule with its own choice of values. A training operator is left out if a column has more than
    `most_values` values. A test operator is left out if a column has more values than in training, or if the operator has no
    certified optimum.
    """
    known = {certificate.operator for certificate in certificates_of(hardware, space)}
    graphs = [ConstructionGraph(op, hardware, space) for op in operators.resolve(trained)]
    graphs = [graph for graph in graphs if max(len(c.values) for c in graph.coordinates.movable()) <= most_values]
    if not graphs:
        raise ValueError(f"operators {trained!r}: none has columns of at most {most_values} values")
    most, tried, left = _most_values(*graphs), list[str](), list[str]()
    for op in operators.resolve(tested):
        own = _most_values(ConstructionGraph(op, hardware, space))
        fits = all(count <= most.get(column, 0) for column, count in own.items())
        (tried if str(op) in known and fits else left).append(str(op))
    if not tried:
        raise ValueError(f"tested {tested!r}: none has a certified optimum on {hardware} in {space!r}, and columns that fit")
    return tuple(str(graph.operator) for graph in graphs), evenly(tried, most_tested), tuple(left)


def _most_values(*graphs: ConstructionGraph) -> dict[int, int]:
    """Return, for each column of a schedule, the largest number of its values in any of the graphs.

    Columns are named by their first index in a row.
    """
    most: dict[int, int] = {}
    for graph in graphs:
        for column in graph.coordinates.movable():
            most[column.first] = max(most.get(column.first, 0), len(column.values))
    return most


def make(ground: str, count: int, ops: Sequence[str], hardware: str, space: str) -> ConstructVecEnv:
    """Make `count` environments on one thread, in which each episode is about one of the operators.

    `ground` names the environment (a key of `GROUNDS`).
    """
    from gensor_gym.env import sb3

    made: ConstructVecEnv = getattr(sb3, GROUNDS[ground])(count, operator=list(ops), hardware=hardware, space=space, threads=1)
    return made


@dataclass(frozen=True)
class Trial:
    """One training of an agent with a seed, and everything that its results depend on."""

    agent: str
    learner: str
    environment: str
    seconds: float
    settings: Mapping[str, Any]
    trained: str
    tested: str
    most_values: int
    most_tested: int | None
    hardware: str
    space: str
    num_envs: int
    programs: int
    seed: int

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """Training operators, test operators and left-out operators, as `operators_of` returns them."""
        return operators_of(self.trained, self.tested, self.most_values, self.most_tested, self.hardware, self.space)

    @property
    def config(self) -> dict[str, Any]:
        """All inputs that determine the training's result."""
        plain = {name: value for name, value in asdict(self).items() if name != "agent"}
        marks = fingerprints([operators.parse(text) for text in self.lists[1]], self.hardware, self.space)
        return {**plain, "fingerprint": common(marks.values())}

    @property
    def key(self) -> str:
        """Hash of all inputs that determine the training's result, sixteen hexadecimal digits."""
        return short_hash(self.config)


class Counted(VecEnvWrapper):
    """Environment wrapper that counts illegal actions, unless the learner uses action masks (`heeded`)."""

    def __init__(self, venv: Any, heeded: bool) -> None:
        super().__init__(venv)
        self.heeded, self.illegal = heeded, 0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Count the illegal actions and pass the actions on."""
        if not self.heeded:
            legal = np.stack(self.venv.env_method("action_masks"))
            self.illegal += int((~legal[np.arange(len(actions)), actions]).sum())
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the wrapped environments."""
        return self.venv.step_wait()


class Limit(BaseCallback):
    """Callback that ends a training when its processor time is spent, and records its learning curve."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.episodes, self.curve = seconds, 0, list[list[float]]()
        self._since: list[tuple[float, float]] = []
        self._marked = self._illegal = 0
        self._start = time.process_time()

    @property
    def spent(self) -> float:
        """Processor seconds since the training began."""
        return time.process_time() - self._start

    def _on_step(self) -> bool:
        """Note the episodes that ended; return False when the time is spent."""
        ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
        self._since += [(episode["regret"], episode["l"]) for episode in ended]
        self.episodes += len(ended)
        over = self.spent >= self.seconds
        if over or self.spent >= self.seconds * (len(self.curve) + 1) / POINTS:
            self._mark()
        return not over

    def _mark(self) -> None:
        """Add a point to the curve; unknown values are None."""
        steps, illegal = self.num_timesteps - self._marked, self.training_env.illegal - self._illegal  # type: ignore[attr-defined]
        regrets = [regret for regret, _ in self._since if np.isfinite(regret)]
        means = [float(np.mean(values)) if values else None for values in (regrets, [length for _, length in self._since])]
        self.curve.append([round(self.spent, 2), self.num_timesteps, self.episodes, *means, illegal / max(1, steps)])  # type: ignore[list-item]
        self._since, self._marked = [], self.num_timesteps
        self._illegal = self.training_env.illegal  # type: ignore[attr-defined]


def learned(learner: str, settings: Mapping[str, Any], envs: Any, seed: int, limit: Limit) -> Any:
    """Train a model of stable-baselines3 until `limit` is spent, and return it."""
    torch.set_num_threads(1)
    counted = Counted(envs, learner == "MaskablePPO")
    model = CLASSES[learner]("MlpPolicy", counted, seed=seed_of_run(seed), device="cpu", **settings)

    def progress(*_: int) -> None:
        """Tell the model what share of its processor time is left.

        Schedules, such as that of DQN's exploration, usually get the share of steps left, but steps have no limit here.
        """
        model._current_progress_remaining = max(0.0, 1.0 - limit.spent / limit.seconds)

    model._update_current_progress_remaining = progress
    return model.learn(FOREVER, callback=limit)


def run_trial(trial: Trial) -> dict[str, Any]:
    """Train an agent, test it on other operators, and return its row.

    The row has the learning curve, and for each test operator the regrets of the most probable episode and of `programs` drawn
    episodes.
    """
    found: dict[str, Any] = {"key": trial.key, **trial.config, "agent": trial.agent, "code": code_digest(), "curve": []}
    found |= {"date": datetime.date.today().isoformat(), "steps": 0, "episodes": 0}
    if trial.learner == "greedy":
        return {**found, "regrets": {text: _greedy(text, trial) for text in trial.lists[1]}, "lengths": None}
    rng = np.random.default_rng(trial.seed)

    def random(_: np.ndarray, masks: np.ndarray) -> np.ndarray:
        return np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)

    if trial.learner == "random":
        regrets, lengths = _tried(trial, random, None)
        return {**found, "regrets": regrets, "lengths": lengths}
    envs = make(trial.environment, trial.num_envs, trial.lists[0], trial.hardware, trial.space)
    _play(envs, None, random, 8)  # compile before the clock starts
    limit = Limit(trial.seconds)
    model = learned(trial.learner, trial.settings, envs, trial.seed, limit)
    regrets, lengths = _tried(trial, *(_of(model, trial.learner, deterministic) for deterministic in (False, True)))
    found |= {"curve": limit.curve, "steps": model.num_timesteps, "episodes": limit.episodes}
    return {**found, "regrets": regrets, "lengths": lengths}


def _of(model: Any, learner: str, deterministic: bool) -> Act:
    """Return a function that chooses actions by a model. If not deterministic, PPO samples and DQN explores at its final rate."""

    def act(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        given = {"action_masks": masks} if learner == "MaskablePPO" else {}
        actions: np.ndarray = model.predict(observations, deterministic=deterministic, **given)[0]
        return actions

    return act


def _tried(trial: Trial, drawn: Act, probable: Act | None) -> tuple[dict[str, list[float]], float]:
    """Test an agent; return (regrets by operator, mean number of steps of the drawn episodes).

    The first regret of an operator belongs to the most probable episode, or for random play to another drawn episode.
    """
    trained, tested, _ = trial.lists
    both = (trained + tested, trial.hardware, trial.space)
    one, many = (make(trial.environment, count, *both) for count in (1, trial.programs))
    found, lengths = {}, []
    for text in tested:
        first, _ = _play(one, text, probable or drawn)
        regrets, steps = _play(many, text, drawn)
        found[text] = [round(value, 6) for value in (*first.tolist(), *regrets.tolist())]
        lengths.append(float(steps.mean()))
    one.close()
    many.close()
    return found, float(np.mean(lengths))


def _play(envs: ConstructVecEnv, text: str | None, act: Act, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Play until every environment has ended an episode; return its (regrets, steps), float64 [B] each.

    With `most`, playing ends after as many steps, and an episode that lasts longer has NaN. `text` sets the operator.
    """
    if text is not None:
        envs.set_options({"operator": text})
    observations = envs.reset()
    regrets, steps = np.full(envs.num_envs, np.nan), np.zeros(envs.num_envs)
    done = 0
    while (steps == 0).any() and (most is None or done < most):
        masks = np.stack(envs.env_method("action_masks"))
        observations, _, ended, infos = envs.step(act(observations, masks))
        for i in np.flatnonzero(ended & (steps == 0)):
            regrets[i], steps[i] = infos[i]["regret"], infos[i]["steps"]
        done += 1
    return regrets, steps


def _greedy(text: str, trial: Trial) -> list[float]:
    """Return the regrets of up to `programs` greedy descents by the model, the first of them twice.

    The first descent begins at the unscheduled program and stands for the most probable episode.
    """
    best = {c.operator: c.optimum for c in certificates_of(trial.hardware, trial.space)}[text]
    graph = ConstructionGraph(text, trial.hardware, trial.space)
    found: list[float] = []
    for construction in get_strategy("greedy").constructions(graph, np.random.default_rng(trial.seed)):  # type: ignore[attr-defined]
        found.append(round(float(np.log(min(construction.latencies) / best)), 6))
        if len(found) == trial.programs:
            break
    return [found[0], *found]
