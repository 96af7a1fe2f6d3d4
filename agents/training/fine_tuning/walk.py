"""Fine-tune policies that walk on the construction graph: PPO continues in environments whose last reward is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from stable_baselines3.common.callbacks import BaseCallback

from agents.learners.loading import save_policy
from agents.learners.observed import ObservedVecEnv
from agents.learners.stored import POLICY, fill
from agents.policies.learned import load_policy
from agents.training.fine_tuning.measured_reward import MeasuredBudget, MeasuredVectorEnv, Timings
from agents.training.state.archive import read_state, write_state
from agents.training.state.model import restore_model, state_of_model
from agents.training.watch import LAST
from gensor_gym.env.seeds import seed_of_run
from gensor_gym.files import whole
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


class Until(BaseCallback):
    """Callback that ends learning when the budget is spent, and saves the policy after every update."""

    def __init__(self, budget: MeasuredBudget, folder: Path) -> None:
        super().__init__()
        self.budget, self.folder, self._first = budget, folder, 0

    def _on_training_start(self) -> None:
        self._first = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        """Save the policy if it has learned from a rollout of this run."""
        if self.model.num_timesteps > self._first:
            self._save()

    def _on_step(self) -> bool:
        return self.budget.is_left()

    def _save(self) -> None:
        write_state(self.folder / LAST, {}, state_of_model(self.model))
        episodes: Any = self.model.ep_info_buffer or []
        self.budget.add_point(sum(e["r"] for e in episodes) / len(episodes) if episodes else None)


def learn(
    config: DictConfig, card: dict[str, Any], ops: list[Operator], hardware: Hardware, timings: Timings, folder: Path
) -> tuple[int, float]:
    """Continue the training of a card's policy by PPO with measured rewards, and save it.

    Return (environment steps, seconds), including earlier runs. ValueError if the policy was not trained by PPO.
    """
    before = card["config"]["env"]
    kept = {name: before[name] for name in ("space", "discount", "step_cost") if name in before}
    envs = MeasuredVectorEnv(timings, config.num_envs, operator=ops, hardware=hardware, **kept)
    resumed = (folder / LAST).exists()
    model = _model(card, envs, config, folder / LAST)
    model.set_random_seed(seed_of_run(config.seed) + timings.spent)
    budget = MeasuredBudget(timings, config, folder, resumed)
    model.learn(sys.maxsize, callback=Until(budget, folder), reset_num_timesteps=not resumed)
    whole(folder / POLICY, lambda temporary: save_policy(temporary, model))
    envs.close()
    return int(model.num_timesteps), budget.elapsed


def _model(card: dict[str, Any], envs: MeasuredVectorEnv, config: DictConfig, last: Path) -> Any:
    """Load the model saved in `last` if that file exists, else the card's model, with the settings of fine-tuning."""
    from gensor_gym.env.sb3 import ConstructVecEnv

    settings: dict[str, Any] = OmegaConf.to_container(config.ppo)  # type: ignore[assignment]
    learner, trained = load_policy(str(config.checkpoint), config.trust)
    if not hasattr(trained, "clip_range"):
        raise ValueError(
            f"checkpoint {config.checkpoint} holds a {type(trained).__name__}: expected a policy of PPO or of agent columns"
        )
    env = ObservedVecEnv(ConstructVecEnv(envs), learner.observer, measured=True)
    model = learner.make(card["config"]["agent"], env, seed_of_run(config.seed))
    vars(model).update(settings)
    model._setup_model()
    if last.exists():
        restore_model(model, read_state(last, lambda _: None, "another output=FOLDER"))
        model._last_obs = None  # new episodes begin
    else:
        fill(model.policy, trained.policy.state_dict(), config.checkpoint)
    return model
