"""Strategy with a policy that was trained on fused operators: its episodes propose programs, and the model ranks them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agents.fused.observer import GirObserver
from agents.learners.registry import Learner
from agents.policies.card import checked_card
from agents.policies.learned import Episodic, LearnedWalk
from agents.policies.ppo import rollout
from agents.strategy import OtherSearch
from gensor_gym.env.fused.env import GirVectorEnv
from gensor_gym.gir.graph import GirGraph
from gensor_gym.locate import ROOT, located

POLICIES = ROOT / "agents" / "data" / "fused"


@dataclass(frozen=True)
class GirPpo(Episodic, LearnedWalk):
    """Run episodes of a policy that was trained in `Gir-v0`, and rank the programs that they visit by the model."""

    space: str = "gir"
    episodes: int = 64
    """Number of episodes per ranking. The first episode is greedy, the others are sampled."""
    temperature: float = 1.0
    agent: ClassVar[str] = "gir_ppo"

    def folder(self, graph: Any) -> Path:
        """Return the folder of the policy: `checkpoint` or, if that is empty, the shipped one for the hardware's kind."""
        return located(self.checkpoint) if self.checkpoint else POLICIES / f"{self.agent}_{graph.hardware.kind}"

    def policy(self, graph: Any) -> tuple[Learner, Any]:
        """Load the policy: (learner, which trains and evaluates such policies; stable-baselines3 model)."""
        return load_policy(str(self.folder(graph)))

    def explore(self, graph: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Run the policy's episodes; return their fastest programs: (encoded programs, model seconds, number of steps)."""
        if not isinstance(graph, GirGraph):
            raise OtherSearch(f"{graph.operator} is no row nest: expected one for a policy of Gir-v0; `exhaustive` searches it")
        learner, model = self.policy(graph)
        envs = GirVectorEnv(self.episodes, graph.operator, graph.hardware, space=self.space, autoreset_mode="Disabled")
        observer = learner.observer(envs, self.retain, graph.charge)  # type: ignore[arg-type]
        steps = rollout(learner, model, envs, observer, rng, self.temperature)
        envs.close()
        return *observer.programs(), steps


def fused_learner() -> Learner:
    """Return the learner of `Gir-v0`: MaskablePPO with a flat perceptron."""
    from agents.learners.masked import ppo

    return Learner(ppo.make, ppo.load, ppo.logits, ppo.values, GirObserver)


@lru_cache(maxsize=4)
def load_policy(folder: str) -> tuple[Learner, Any]:
    """Load the policy in a checkpoint folder; return (learner, stable-baselines3 model).

    Errors are those of `agents.policies.learned.load_policy`.
    """
    from agents.learners.loading import network_of
    from gensor_gym.env.fused.observation import NUM_FEATURES
    from gensor_gym.gir.actions import NUM_ACTIONS

    place = located(folder)
    model = network_of(place, checked_card(place), fused_learner())
    found = int(model.observation_space.shape[0]), int(model.action_space.n)
    if found != (NUM_FEATURES, NUM_ACTIONS):
        raise ValueError(f"policy {place} has (observations, actions) {found}; Gir-v0 has {NUM_FEATURES, NUM_ACTIONS} here")
    return fused_learner(), model
