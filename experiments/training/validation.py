"""Validation during training: quality of the policy, by the model, on operators that it does not train on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from agents.learners.registry import Learner
from agents.policies.ppo import rollout
from gensor_gym.construction import ConstructionGraph


def over_floor(found: Iterable[tuple[float, ConstructionGraph]]) -> dict[str, float]:
    """Geometric mean over operators of the best program's latency over the roofline floor; it cannot be less than 1."""
    return {"validation_latency_over_floor": float(np.exp(np.mean([np.log(best / graph.floor) for best, graph in found])))}


class Validation:
    """Episodes on a fixed list of operators, repeated identically at every validation."""

    def __init__(self, ops: Iterable[Any], arguments: dict[str, Any], episodes: int, seed: int, make: Any) -> None:
        """Create the environments with `make` and `arguments`; ValueError names a bad value."""
        if episodes < 1:
            raise ValueError(f"eval_episodes is {episodes}; expected 1 or more")
        self.seed = seed
        self.envs = [make(episodes, operator=op, autoreset_mode="Disabled", **arguments) for op in ops]

    def score(self, learner: Learner, model: Any) -> dict[str, float]:
        """`over_floor` of the best programs of all operators."""
        rng = np.random.default_rng(self.seed)
        found = []
        for envs in self.envs:
            observer = learner.observer(envs, 1)
            rollout(learner, model, envs, observer, rng)
            found.append((float(observer.programs()[1].min()), envs.tasks.graphs[0]))
        return over_floor(found)

    def close(self) -> None:
        """Close the environments."""
        for envs in self.envs:
            envs.close()
