"""Steps per second of training MaskablePPO through the SB3 adapter, and the environment's share of the time."""

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
from experiments.benches.lines import Lines, Steal, calibration
from experiments.comparison.summary import interval


class Timed(VecEnvWrapper):
    """Wrapper that adds up the processor seconds spent in the environments: steps and masks."""

    seconds = 0.0

    def reset(self) -> Any:
        """Start all episodes."""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments and add their processor time."""
        begin = time.process_time()
        result = self.venv.step_wait()
        self.seconds += time.process_time() - begin
        return result

    def env_method(self, method_name: str, *args: Any, **arguments: Any) -> list[Any]:
        """Call a method of the environments, such as the one for masks, and add its processor time."""
        begin = time.process_time()
        result = self.venv.env_method(method_name, *args, **arguments)
        self.seconds += time.process_time() - begin
        return result


class Rates(BaseCallback):
    """Callback that records wall, processor and environment seconds at the start of every rollout."""

    def __init__(self, env: Timed) -> None:
        """Begin with no marks."""
        super().__init__()
        self.env = env
        self.marks: list[tuple[float, float, float]] = []
        self.loops: list[float] = []

    def _on_step(self) -> bool:
        """Continue the training."""
        return True

    def _on_rollout_start(self) -> None:
        """Mark the start of a rollout, which ends the previous round (a rollout and its update)."""
        self.loops.append(calibration())
        self.marks.append((time.perf_counter(), time.process_time(), self.env.seconds))


def run(settings: DictConfig, hardware: str, seed: int, emit: Lines) -> None:
    """Train sb3-contrib's own policy and `agents.learners.masked.policy`; emit a line for each, without its first round."""
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
    """Emit the times of all rounds except the first and the last."""
    wall, cpu, inside = np.diff(np.array(rates.marks)[1:], axis=0).T
    emit(
        kind="learning", num_envs=learning.num_envs, policy=policy, operator=learning.operator, hardware=hardware,
        space="extended", steps=learning.steps, steps_per_second=interval((learning.steps / wall).tolist()),
        cpu_us_per_step=interval((cpu / learning.steps * 1e6).tolist()), environment_share=float(inside.sum() / cpu.sum()),
        torch_threads=learning.torch_threads, calibration_loop_per_second=interval(rates.loops), stolen=stolen,
    )  # fmt: skip
