"""A learned policy as a strategy: its episodes propose programs, the model ranks them, the top is measured."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.learners import Learner, get_learner
from agents.ranking import Construction, measure_rankings, ranked
from agents.sight import Sight
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.layout import LAYOUT_VERSION
from gensor_gym.measure.session import Session

POLICIES = Path(__file__).resolve().parent.parent / "results" / "policies"


@dataclass(frozen=True)
class Ppo:
    """Sample episodes of the policy, rank the programs they saw by the model, measure the top.

    The checkpoint is a folder with `policy.zip` and `card.json`; by default the one shipped for the hardware's kind. It was
    trained on the train split on the analytic tier only.
    """

    space: str = "extended"
    checkpoint: str = ""
    """Folder of the policy; empty takes results/policies/<agent>_<kind of hardware>."""
    episodes: int = 64
    """Episodes sampled at a time, the first of them greedy."""
    retain: int = 4
    """Fastest programs kept of each episode."""
    per_register_tile: int = 2
    agent: ClassVar[str] = "ppo"
    """Who learned the policy that is taken by default."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Propose and measure until the budget is spent or nothing new is proposed."""
        measure_rankings(self.construct, session, rng, self.per_register_tile)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """The fastest programs that the policy's episodes saw, fastest by the model first; no measurement."""
        begin, before = time.perf_counter(), graph.evaluations
        learner, model = load_policy(str(self.folder(graph)))
        groups = read_card(self.folder(graph))["config"]["env"].get("observation_groups")
        envs = ConstructVectorEnv(
            self.episodes, operator=graph.operator, hardware=graph.hardware, space=self.space, observation_groups=groups,
            autoreset_mode="Disabled",
        )  # fmt: skip
        sight = learner.sight(envs, self.retain)
        steps = rollout(learner, model, sight, rng)
        envs.close()
        graph.charge(sight.evaluations)
        rows, seconds = sight.programs()
        schedules, latencies = ranked(rows, seconds, graph)
        return Construction(schedules, latencies, steps, graph.evaluations - before, time.perf_counter() - begin)

    def folder(self, graph: ConstructionGraph) -> Path:
        """Where the checkpoint lies."""
        return Path(self.checkpoint) if self.checkpoint else POLICIES / f"{self.agent}_{graph.hardware.kind}"

    def training_seconds(self, graph: ConstructionGraph) -> float:
        """What the policy cost to train, from its card."""
        return float(read_card(self.folder(graph))["training_seconds"])


@dataclass(frozen=True)
class A2c(Ppo):
    """A policy that `agent=a2c` learned."""

    agent: ClassVar[str] = "a2c"


@dataclass(frozen=True)
class Dqn(Ppo):
    """Values that `agent=dqn` learned: greedy first, then sampled by Boltzmann's distribution."""

    agent: ClassVar[str] = "dqn"


@dataclass(frozen=True)
class QrDqn(Ppo):
    """Values that `agent=qrdqn` learned, means of quantiles; as `Dqn`."""

    agent: ClassVar[str] = "qrdqn"


def rollout(learner: Learner, model: Any, sight: Sight, rng: np.random.Generator) -> int:
    """One episode in every environment of the sight, which remembers the programs; returns the steps taken in all.

    Environment 0 takes the most probable legal action, the others sample.
    """
    envs = sight.envs
    flat, _ = envs.reset(seed=int(rng.integers(2**31)))
    over, steps = np.zeros(envs.num_envs, dtype=bool), 0
    while True:
        live = np.flatnonzero(~over)
        seen, masks = sight.observe(flat, over)[live], envs.action_masks()[live]
        actions = np.full(envs.num_envs, STOP)
        actions[live] = act(learner.logits(model, seen, masks), live == 0, rng)
        steps += len(live)
        flat, _, ended, _, _ = envs.step(actions)
        over |= ended
        if over.all():
            return steps
        if ended.any():
            flat, _ = envs.reset(options={"reset_mask": ended})


def act(logits: np.ndarray, greedy: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Actions int64 [B] from logits [B, N]: the most probable where `greedy` [B], else drawn by `rng`."""
    return (logits + np.where(greedy[:, None], 0.0, rng.gumbel(size=logits.shape))).argmax(axis=1)


@lru_cache(maxsize=8)
def load_policy(folder: str) -> tuple[Learner, Any]:
    """How the policy of a checkpoint folder was learned, and its model.

    FileNotFoundError says how to train one, ValueError that its layout is another.
    """
    path = Path(folder) / "policy.zip"
    if not path.exists():
        raise FileNotFoundError(f"no policy at {path}; train one with: python -m experiments.train agent=NAME output={folder}")
    card = read_card(Path(folder))
    if card["layout"] != LAYOUT_VERSION:
        raise ValueError(
            f"policy {path} was trained on layout {card['layout']}; this version has layout {LAYOUT_VERSION}"
        )
    learner = get_learner(card["agent"])
    return learner, learner.load(path, None)


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a checkpoint: configuration, data, cost and evaluation."""
    return json.loads((folder / "card.json").read_text())
