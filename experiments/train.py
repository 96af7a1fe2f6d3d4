"""Train a policy on the analytic tier.

`python -m experiments.train agent=ppo env.hardware=cascade_lake output=results/policies/ppo_cpu`
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from agents.cloning import examples, imitate
from agents.learners import Learner, get_learner
from agents.ppo import Ppo
from agents.seen import SeenVecEnv
from agents.sight import Sight
from agents.strategy import get_strategy
from experiments.folders import make_folder
from experiments.variants import with_variants
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.fingerprint import fingerprint
from gensor_gym.graph.layout import LAYOUT_VERSION


class Watch(BaseCallback):
    """Shows progress and keeps the learning curve; saves a checkpoint now and then, from which a run resumes."""

    def __init__(self, total: int, folder: Path, progress: Progress, every: int) -> None:
        """`every` steps between checkpoints."""
        super().__init__()
        self.folder, self.every = folder, every
        self.progress = progress
        self.bar = progress.add_task("training", total=total)
        self.curve: list[dict[str, float]] = []
        self._next = every

    def _on_step(self) -> bool:
        """Advance the bar; save when it is time."""
        self.progress.update(self.bar, completed=self.num_timesteps)
        if self.num_timesteps >= self._next:
            self.model.save(self.folder / "last.zip")
            self._next += self.every
        return True

    def _on_rollout_end(self) -> None:
        """One point of the learning curve per rollout."""
        episodes: Any = self.model.ep_info_buffer or []
        if episodes:
            mean = float(np.mean([e["r"] for e in episodes]))
            self.curve.append({"steps": self.num_timesteps, "mean_return": mean})
            with (self.folder / "curve.jsonl").open("a") as file:
                file.write(json.dumps(self.curve[-1]) + "\n")


def evaluate(cfg: DictConfig, folder: Path) -> dict[str, float]:
    """By the model, over the operators of `cfg.eval_operators` (the validation split).

    The geometric mean of (policy's best of its episodes) / (traverser's best); and over the tasks whose optimum is certified the
    mean regret, latency / optimum - 1, of the greedy episode and of the best of all.
    """
    name = "markov_ext" if cfg.env.space == "extended" else "markov"
    ours = {"greedy": 1, "best": cfg.eval_episodes}
    regrets: dict[str, list[float]] = {kind: [] for kind in ours}
    ratios = []
    for op in operators.resolve(cfg.eval_operators):
        graph = ConstructionGraph(op, cfg.env.hardware, cfg.env.space)
        rng, certificate = np.random.default_rng(cfg.seed), certificate_of(graph)
        for kind, episodes in ours.items():
            strategy = Ppo(space=cfg.env.space, checkpoint=str(folder), episodes=episodes)
            reached = strategy.construct(graph, rng).latencies[0]
            if certificate is not None:
                regrets[kind].append(reached / certificate.optimum - 1)
        traverser: Any = get_strategy(name, space=cfg.env.space)
        ratios.append(np.log(reached / traverser.construct(graph, rng).latencies[0]))
    known = {f"mean_regret_{kind}": float(np.mean(values)) for kind, values in regrets.items() if values}
    scores = {f"validation_latency_over_{name}": float(np.exp(np.mean(ratios))), "tasks": len(ratios)}
    return scores | known | {"certified": len(regrets["best"])}


def write_card(cfg: DictConfig, folder: Path, seconds: float, steps: int, **more: object) -> None:
    """Configuration, data, cost and evaluation beside the policy."""
    card = {
        "agent": cfg.agent.name, "config": OmegaConf.to_container(cfg), "layout": LAYOUT_VERSION, "fingerprint": fingerprint(),
        "split": "v1 train", "operators": given(cfg), "training_seconds": round(seconds, 1), "training_steps": steps,
        "date": datetime.date.today().isoformat(), "torch_threads": torch.get_num_threads(), **more,
    }  # fmt: skip
    temporary = folder / "card.json.tmp"
    temporary.write_text(json.dumps(card, indent=1) + "\n")
    temporary.replace(folder / "card.json")


def given(cfg: DictConfig) -> Any:
    """The operators to train on as plain text or a list of it."""
    return OmegaConf.to_container(cfg.operators) if OmegaConf.is_list(cfg.operators) else cfg.operators


def prepare(cfg: DictConfig, sight: type[Sight]) -> tuple[Path, SeenVecEnv]:
    """The folder, made, and the environments; ValueError names a bad argument."""
    from gensor_gym.env.sb3 import make_sb3

    folder = make_folder(cfg.output)
    arguments: Any = OmegaConf.to_container(cfg.env)
    known = with_variants(list(operators.resolve(given(cfg))), cfg.variants, np.random.default_rng(cfg.seed))
    return folder, SeenVecEnv(make_sb3(num_envs=cfg.num_envs, operator=known, **arguments), sight)


def clone(cfg: DictConfig, learner: Learner, model: Any, env: SeenVecEnv) -> None:
    """Behaviour cloning of a fresh model, where `cfg.clone` names a teacher."""
    if cfg.clone is None:
        return
    begin, rng = time.perf_counter(), np.random.default_rng(cfg.seed)
    shown = examples(learner, env.tasks, cfg.clone, cfg.cloning.ways, cfg.env.step_cost, rng)
    losses = imitate(model, shown, cfg.cloning.epochs, cfg.cloning.batch_size, cfg.cloning.learning_rate, cfg.seed)
    spent = time.perf_counter() - begin
    lost = f"{losses[0]:.3f} to {losses[-1]:.3f}"
    print(f"cloned {len(shown.returns)} states of {cfg.clone} in {spent:.0f} s: loss {lost}", flush=True)


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """Train, save policy and card, evaluate on the validation split."""
    torch.set_num_threads(cfg.torch_threads)
    try:
        learner = get_learner(cfg.agent.name)
        folder, env = prepare(cfg, learner.sight)
    except ValueError as error:
        sys.exit(str(error))
    console = Console()
    last = folder / "last.zip"
    resumed = bool(cfg.resume and last.exists())
    model = learner.load(last, env) if resumed else learner.make(cfg.agent, env, cfg.seed)
    begin = time.perf_counter()
    if not resumed:
        clone(cfg, learner, model, env)
    with Progress(
        "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as progress:
        watch = Watch(cfg.steps, folder, progress, cfg.checkpoint_every)
        left = max(0, cfg.steps - model.num_timesteps)
        model.learn(left, callback=watch, reset_num_timesteps=not resumed)
    seconds = time.perf_counter() - begin
    model.save(folder / "policy.zip", exclude=["rollout_buffer", "replay_buffer", "ep_info_buffer", "ep_success_buffer"])
    last.unlink(missing_ok=True)
    write_card(cfg, folder, seconds, model.num_timesteps, resumed=resumed)
    scores = evaluate(cfg, folder)
    write_card(cfg, folder, seconds, model.num_timesteps, resumed=resumed, evaluation=scores)
    console.print(f"policy and card in {folder}: {scores}, {seconds:.0f} s")


if __name__ == "__main__":
    main()
