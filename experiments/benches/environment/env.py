"""Benchmark of environments: steps per second, alone and vectorised, the time of a step's parts, and the speed of training.

Actions are recorded beforehand by playing the same episodes once, because an environment is deterministic under a seed. So only
steps, and the resets between episodes, are timed. A step consists of transition, action mask, observation and reward.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from omegaconf import DictConfig
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from agents.learners.masked.policy import MaskedBuffer, MaskedPolicy
from experiments.benches.environment import parts
from experiments.benches.lines import Lines, Steal, calibration, machine
from experiments.comparison.summary import interval
from gensor_gym.env import CONSTRUCT, GIR, WRITE
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.compiling.early import waiting

# Steps per second of training MaskablePPO through the SB3 adapter, and the environment's share of the time.

class Timed(VecEnvWrapper):
    """Wrapper of vector environments that adds up the processor seconds that steps and action masks take."""

    seconds = 0.0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments, and add the processor time that this takes."""
        begin = time.process_time()
        result = self.venv.step_wait()
        self.seconds += time.process_time() - begin
        return result

    def env_method(self, method_name: str, *args: Any, **arguments: Any) -> list[Any]:
        """Call a method of the environments, such as the one for action masks, and add the processor time that this takes."""
        begin = time.process_time()
        result = self.venv.env_method(method_name, *args, **arguments)
        self.seconds += time.process_time() - begin
        return result


class Rates(BaseCallback):
    """Callback that notes wall time, processor time and the environments' processor time at the start of every rollout."""

    def __init__(self, env: Timed) -> None:
        super().__init__()
        self.env = env
        self.marks: list[tuple[float, float, float]] = []
        self.loops: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        """Note the times at the start of a rollout, which is also the end of the previous rollout and its update."""
        self.loops.append(calibration())
        self.marks.append((time.perf_counter(), time.process_time(), self.env.seconds))


def learn(settings: DictConfig, hardware: str, seed: int, emit: Lines) -> None:
    """Time MaskablePPO's training with sb3-contrib's `MlpPolicy` and with our `MaskedPolicy`; emit a line for each."""
    from gensor_gym.env.sb3 import make_sb3
    from gensor_gym.env.seeds import seed_of_run

    learning = settings.learning
    torch.set_num_threads(learning.torch_threads)
    for name, policy, buffer in (("MlpPolicy", "MlpPolicy", None), ("MaskedPolicy", MaskedPolicy, MaskedBuffer)):
        env = Timed(make_sb3(learning.num_envs, operator=learning.operator, hardware=hardware, space="extended"))
        model = MaskablePPO(
            policy, env, gamma=env.get_attr("discount")[0], n_steps=learning.steps // learning.num_envs,
            batch_size=learning.batch_size, n_epochs=learning.epochs, policy_kwargs={"net_arch": list(learning.net_arch)},
            seed=seed_of_run(seed), device="cpu", rollout_buffer_class=buffer,
        )  # fmt: skip
        rates, steal = Rates(env), Steal()
        model.learn(learning.steps * (learning.rounds + 2), callback=rates)
        _emit_learning(emit, name, hardware, learning, rates, steal.share())
        env.close()


def _emit_learning(emit: Lines, policy: str, hardware: str, learning: DictConfig, rates: Rates, stolen: float) -> None:
    """Emit steps per second and the environment's share, from the rounds that a training's callback timed.

    A round is a rollout with its update. The first round, which warms up, and the last, whose end is not timed, do not count.
    """
    wall, cpu, inside = np.diff(np.array(rates.marks)[1:], axis=0).T
    emit(
        kind="learning", num_envs=learning.num_envs, policy=policy, operator=learning.operator, hardware=hardware,
        space="extended", steps=learning.steps, steps_per_second=interval((learning.steps / wall).tolist()),
        cpu_us_per_step=interval((cpu / learning.steps * 1e6).tolist()), environment_share=float(inside.sum() / cpu.sum()),
        torch_threads=learning.torch_threads, calibration_loop_per_second=interval(rates.loops), stolen=stolen,
    )  # fmt: skip


def run(config: DictConfig, emit: Lines) -> None:
    """Time environments and training; emit a line for each hardware, operator, space and form, then lines about training.

    Forms are a single environment, a vector of environments, and a vector in the writing form (`Write-v0`).
    """
    settings = config.env
    emit(kind="machine", **machine())
    for space in settings.fused.spaces:
        for operator in settings.fused.operators:
            arguments = {"operator": operator, "hardware": settings.fused.hardware, "space": space}
            _single(GIR, arguments, settings, config.seed, emit)
            _vector(GIR, arguments, settings, config.seed, emit)
    for hardware in settings.hardware:
        for space in settings.spaces:
            for operator in settings.operators:
                arguments = {"operator": operator, "hardware": hardware, "space": space}
                _single(CONSTRUCT, arguments, settings, config.seed, emit)
                _vector(CONSTRUCT, arguments, settings, config.seed, emit)
                _vector(WRITE, arguments, settings, config.seed, emit)
                _parts(arguments, settings, config.seed, emit)
        if settings.learning.rounds > 0:
            learn(settings, hardware, config.seed, emit)


def _single(name: str, arguments: dict, settings: DictConfig, seed: int, emit: Lines) -> None:
    env = gymnasium.make(name, **arguments)
    with waiting():  # compile everything before it is timed
        episodes = _play(env, settings.single_steps, seed)
    steps = sum(map(len, episodes))

    def repeat() -> None:
        for actions in episodes:
            env.reset(seed=seed)
            for action in actions:
                env.step(action)

    _emit(emit, "single", 1, arguments, steps, repeat, settings.repeats)
    env.close()


def _vector(name: str, arguments: dict, settings: DictConfig, seed: int, emit: Lines) -> None:
    """Time steps of a vector environment and emit a line; a sub-environment's step that only resets it is not counted."""
    envs = gymnasium.make_vec(name, num_envs=settings.num_envs, **arguments)
    actions, steps = _play_vector(envs, settings.vector_steps, seed)

    def repeat() -> None:
        envs.reset(seed=seed)
        for row in actions:
            envs.step(row)

    form = "writing" if name == WRITE else "vector"
    _emit(emit, form, settings.num_envs, arguments, steps, repeat, settings.repeats)
    envs.close()


def _parts(arguments: dict, settings: DictConfig, seed: int, emit: Lines) -> None:
    envs = gymnasium.make_vec(CONSTRUCT, num_envs=settings.num_envs, **arguments)
    _play_vector(envs, parts.DEEP, seed)
    inner: Any = envs.unwrapped
    parts.run(inner.graphs[0], inner.rows.copy(), arguments, settings.repeats, emit)
    envs.close()


def _emit(emit: Lines, form: str, count: int, arguments: dict, steps: int, repeat: Callable[[], None], repeats: int) -> None:
    repeat()
    steal = Steal()
    rates, loops, busy = [], [], []
    for _ in range(repeats):
        loops.append(calibration())
        wall, cpu = time.perf_counter(), time.process_time()
        repeat()
        busy.append((time.process_time() - cpu) / steps * 1e6)
        rates.append(steps / (time.perf_counter() - wall))
    emit(
        kind=form, num_envs=count, **arguments, steps=steps, steps_per_second=interval(rates), rates=rates,
        cpu_us_per_step=interval(busy), calibration_loop_per_second=interval(loops), stolen=steal.share(),
    )  # fmt: skip


def _play(env: gymnasium.Env, steps: int, seed: int) -> list[list[int]]:
    """Play random episodes of at least `steps` actions in all and return each episode's actions.

    `stop` is chosen only if no other action is legal, so that episodes are long.
    """
    rng = np.random.default_rng(seed)
    episodes: list[list[int]] = []
    while sum(map(len, episodes)) < steps:
        _, info = env.reset(seed=seed)
        actions, over = [], False
        while not over:
            actions.append(_choose(info["action_mask"], rng))
            _, _, over, _, info = env.step(actions[-1])
        episodes.append(actions)
    return episodes


def _play_vector(envs: gymnasium.vector.VectorEnv, steps: int, seed: int) -> tuple[np.ndarray, int]:
    """Play `steps` random legal actions in every sub-environment and return (actions, count).

    `actions` are int64 [steps, num_envs]; `count` is their number without those that only reset a sub-environment.
    """
    rng = np.random.default_rng(seed)
    _, info = envs.reset(seed=seed)
    actions = np.zeros((steps, envs.num_envs), dtype=np.int64)
    over = np.zeros(envs.num_envs, dtype=bool)
    counted = 0
    for row in actions:
        masks = info["action_mask"].astype(bool)
        masks[:, STOP] &= ~masks[:, 1:].any(axis=1)  # in the writing form, action 0 is a size, not `stop`
        row[:] = np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)
        counted += int(np.count_nonzero(~over))
        _, _, over, _, info = envs.step(row)
    return actions, counted


def _choose(mask: np.ndarray, rng: np.random.Generator) -> int:
    legal = np.flatnonzero(mask[1:]) + 1
    return int(rng.choice(legal)) if len(legal) else STOP
