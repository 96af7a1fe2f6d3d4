"""A learned policy (MaskablePPO) as a strategy: it proposes programs, the model ranks them, the top is measured."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sb3_contrib import MaskablePPO

from agents.feedback import measure_with_feedback
from agents.ranking import Construction, measure_rankings, ranked
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.layout import LAYOUT_VERSION
from gensor_gym.measure.session import Session

POLICIES = Path(__file__).resolve().parent.parent / "results" / "policies"


@dataclass(frozen=True)
class Ppo:
    """Sample episodes of the policy, rank their programs by the model, measure the top.

    The checkpoint is a folder with `policy.zip` and `card.json`; by default the one shipped for the hardware's kind. It was
    trained on the train split on the analytic tier only.
    """

    space: str = "extended"
    checkpoint: str = ""
    """Folder of the policy; empty takes results/policies/ppo_<kind of hardware>."""
    episodes: int = 64
    """Episodes sampled at a time, the first of them greedy."""
    per_register_tile: int = 2
    near: float | None = None
    """Where set, what is proposed is measured as by `markov_ext`: corrected by what was measured, within so many times the best
    (`agents.feedback`). Otherwise down the ranking of the model."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Propose and measure until the budget is spent or nothing new is proposed."""
        if self.near is None:
            measure_rankings(self.construct, session, rng, self.per_register_tile)
        else:
            measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Programs proposed by the policy, fastest by the model first; no measurement."""
        begin = time.perf_counter()
        model = load_policy(str(self.folder(graph)))
        envs = ConstructVectorEnv(
            self.episodes, operator=graph.operator, hardware=graph.hardware, space=self.space, autoreset_mode="Disabled"
        )
        rows, steps = rollout(model, envs, rng)
        envs.close()
        graph.charge(steps)
        schedules, latencies = ranked(rows, graph.latencies(rows), graph)
        return Construction(schedules, latencies, steps, steps + len(rows), time.perf_counter() - begin)

    def folder(self, graph: ConstructionGraph) -> Path:
        """Where the checkpoint lies."""
        return Path(self.checkpoint) if self.checkpoint else POLICIES / f"ppo_{graph.hardware.kind}"

    def training_seconds(self, graph: ConstructionGraph) -> float:
        """What the policy cost to train, from its card."""
        return float(read_card(self.folder(graph))["training_seconds"])


def rollout(model: MaskablePPO, envs: ConstructVectorEnv, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Last schedules int32 [B, ROW] of one episode in every environment, and the steps taken in all.

    Environment 0 takes the most probable legal action, the others sample.
    """
    observation, _ = envs.reset(seed=int(rng.integers(2**31)))
    over, steps = np.zeros(envs.num_envs, dtype=bool), 0
    last = envs.rows.copy()
    while not over.all():
        actions = act(model, observation, envs.action_masks(), rng)
        steps += int(np.count_nonzero(~over))
        observation, _, ended, _, _ = envs.step(actions)
        fresh = ended & ~over
        last[fresh] = envs.rows[fresh]
        over |= ended
        if ended.any() and not over.all():
            observation, _ = envs.reset(options={"reset_mask": ended})
    return last, steps


def act(model: MaskablePPO, observation: np.ndarray, masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Actions int64 [B]: greedy for the first row, drawn by `rng` from the masked distribution for the others."""
    import torch

    with torch.no_grad():
        tensor = torch.as_tensor(observation)
        masked: Any = model.policy.get_distribution(tensor, action_masks=masks)
        logits = masked.distribution.logits.numpy()
    gumbel = rng.gumbel(size=logits.shape)
    gumbel[0] = 0.0
    return np.where(masks, logits + gumbel, -np.inf).argmax(axis=1)


@lru_cache(maxsize=8)
def load_policy(folder: str) -> MaskablePPO:
    """The policy of a checkpoint folder; FileNotFoundError says how to train one, ValueError that its layout is another."""
    path = Path(folder) / "policy.zip"
    if not path.exists():
        raise FileNotFoundError(
            f"no policy at {path}; train one with: python -m experiments.train agent=ppo output={folder}"
        )
    card = read_card(Path(folder))
    if card["layout"] != LAYOUT_VERSION:
        raise ValueError(
            f"policy {path} was trained on layout {card['layout']}; this version has layout {LAYOUT_VERSION}"
        )
    return MaskablePPO.load(path, device="cpu")


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a checkpoint: configuration, data, cost and evaluation."""
    return json.loads((folder / "card.json").read_text())
