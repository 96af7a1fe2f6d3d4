"""Fine-tuning of policies that walk on the construction graph: PPO goes on in environments whose last reward is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from stable_baselines3.common.callbacks import BaseCallback

from agents.learners.observed import ObservedVecEnv
from agents.policies.learned import POLICY, load_policy
from experiments.common.results import whole
from experiments.fine_tuning.measured_budget import MeasuredBudget
from experiments.fine_tuning.measured_reward import MeasuredVectorEnv, Timings
from experiments.training.watch import LAST
from gensor_gym.hardware.types import Hardware
from gensor_gym.locate import located
from gensor_gym.operators.types import Operator


class Until(BaseCallback):
    """Ends learning when enough was measured, and saves the policy whenever a rollout has been learned from."""

    def __init__(self, budget: MeasuredBudget, folder: Path) -> None:
        """Saves in the folder."""
        super().__init__()
        self.budget, self.folder, self._first = budget, folder, 0

    def _on_training_start(self) -> None:
        """Nothing has been learned yet in this run."""
        self._first = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        """The rollout before, if there was one, has been learned from."""
        if self.model.num_timesteps > self._first:
            self._save()

    def _on_step(self) -> bool:
        """Whether to go on."""
        return self.budget.is_left()

    def _save(self) -> None:
        """The policy, whole or not at all, and a point of the curve."""
        whole(self.folder / LAST, self.model.save)
        episodes: Any = self.model.ep_info_buffer or []
        self.budget.add_point(sum(e["r"] for e in episodes) / len(episodes) if episodes else None)


def learn(
    config: DictConfig, card: dict[str, Any], ops: list[Operator], hardware: Hardware, timings: Timings, folder: Path
) -> tuple[int, float]:
    """Go on with the policy of the card, which is saved; steps of the environment and seconds, of earlier runs as well.

    ValueError for a policy that PPO did not learn.
    """
    before = card["config"]["env"]
    kept = {name: before[name] for name in ("space", "discount", "step_cost") if name in before}
    envs = MeasuredVectorEnv(timings, config.num_envs, operator=ops, hardware=hardware, **kept)
    resumed = (folder / LAST).exists()
    model = _load(folder / LAST if resumed else located(config.checkpoint) / POLICY, envs, config)
    model.set_random_seed(config.seed + timings.spent)
    budget = MeasuredBudget(timings, config, folder, resumed)
    model.learn(sys.maxsize, callback=Until(budget, folder), reset_num_timesteps=not resumed)
    model.save(folder / POLICY, exclude=["rollout_buffer", "ep_info_buffer", "ep_success_buffer"])
    envs.close()
    return int(model.num_timesteps), budget.elapsed


def _load(path: Path, envs: MeasuredVectorEnv, config: DictConfig) -> Any:
    """The model of a checkpoint with the settings of fine-tuning in place of those it was trained with."""
    from gensor_gym.env.sb3 import ConstructVecEnv

    settings: dict[str, Any] = OmegaConf.to_container(config.ppo)  # type: ignore[assignment]
    learner, model = load_policy(str(config.checkpoint))
    if not hasattr(model, "clip_range"):
        raise ValueError(
            f"checkpoint {config.checkpoint} holds a {type(model).__name__}: expected a policy that PPO or agent columns learned"
        )
    env = ObservedVecEnv(ConstructVecEnv(envs), learner.observer, measured=True)
    return type(model).load(path, env=env, device="cpu", custom_objects=settings)
