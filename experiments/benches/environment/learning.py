"""Steps per second of MaskablePPO through the adapter, learning included, and the environment's share of the time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from agents.learners.masked.policy import MaskedBuffer, MaskedPolicy
from experiments.benches.lines import Lines, Steal, calibration, spread


class Timed(VecEnvWrapper):
    """Processor seconds spent in the environments: steps and masks."""

    seconds = 0.0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """Step, timed."""
        begin = time.process_time()
        result = self.venv.step_wait()
        self.seconds += time.process_time() - begin
        return result

    def env_method(self, method_name: str, *args: Any, **arguments: Any) -> list[Any]:
        """Masks (or another method), timed."""
        begin = time.process_time()
        result = self.venv.env_method(method_name, *args, **arguments)
        self.seconds += time.process_time() - begin
        return result


class Rates(BaseCallback):
    """Wall, processor and environment seconds of every rollout and the update after it."""

    def __init__(self, env: Timed) -> None:
        """Nothing yet."""
        super().__init__()
        self.env = env
        self.marks: list[tuple[float, float, float]] = []
        self.loops: list[float] = []

    def _on_step(self) -> bool:
        """Go on."""
        return True

    def _on_rollout_start(self) -> None:
        """One round ends when the next rollout begins."""
        self.loops.append(calibration())
        self.marks.append((time.perf_counter(), time.process_time(), self.env.seconds))


def run(settings: DictConfig, hardware: str, seed: int, emit: Lines) -> None:
    """One line for each policy: sb3-contrib's own and `agents.learners.masked.policy`; the first round is not counted."""
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
        _emit(emit, name, hardware, learning, rates, steal.share())
        env.close()


def _emit(emit: Lines, policy: str, hardware: str, learning: DictConfig, rates: Rates, stolen: float) -> None:
    """Times of the rounds between the first and the last rollout."""
    wall, cpu, inside = np.diff(np.array(rates.marks)[1:], axis=0).T
    emit(
        kind="learning", num_envs=learning.num_envs, policy=policy, operator=learning.operator, hardware=hardware,
        space="extended", steps=learning.steps, steps_per_second=spread((learning.steps / wall).tolist()),
        cpu_us_per_step=spread((cpu / learning.steps * 1e6).tolist()), environment_share=float(inside.sum() / cpu.sum()),
        torch_threads=learning.torch_threads, calibration_loop_per_second=spread(rates.loops), stolen=stolen,
    )  # fmt: skip
