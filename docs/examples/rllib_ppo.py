"""PPO by RLlib (its new API stack) on this environment: `pip install -e '.[lab,rllib]'`, without constraints.txt.

RLlib finds the environment by a name registered with `register_env`. It samples and learns in this process and starts no
workers. Masks are ignored here: an illegal action costs a step, as for any agent without masks.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

ID = "gensor_gym:gensor_gym/Construct-v0"
ENVIRONMENTS = 8


def config(seed: int) -> PPOConfig:
    """Return RLlib's configuration of PPO; settings that are not named here keep RLlib's defaults."""
    register_env("construct", lambda arguments: gymnasium.make(ID, **arguments))
    return (
        PPOConfig()
        .environment("construct", env_config={})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=ENVIRONMENTS)
        .learners(num_learners=0)
        .training(gamma=1.0, lr=1e-3, train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=4, entropy_coeff=0.01)
        .debugging(seed=seed)
    )


def train(total_steps: int = 100_000, seed: int = 0) -> list[float]:
    """Train an agent; return the mean return of recent episodes after each iteration that reports it."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    algorithm = config(seed).build_algo()
    curve: list[float] = []
    steps = 0
    while steps < total_steps:
        found: dict[str, Any] = algorithm.train()["env_runners"]
        steps = int(found["num_env_steps_sampled_lifetime"])
        if "episode_return_mean" in found:
            curve.append(float(found["episode_return_mean"]))
            print(f"{steps:>8} steps  mean return {curve[-1]:.3f}")
    algorithm.stop()
    ray.shutdown()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO by RLlib")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    train(**vars(parser.parse_args()))
