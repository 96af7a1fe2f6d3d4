"""How good a policy is on operators it does not learn from, by the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.column_choices import is_joint
from agents.column_policy import ColumnWriter
from agents.learners import Learner
from agents.ppo import Ppo, rollout
from agents.strategy import get_strategy
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.vector import ConstructVectorEnv
from gensor_gym.exact.shipped import certificate_of


class Validation:
    """Episodes on a list of operators, the same ones again whenever it is asked."""

    def __init__(self, ops: Any, arguments: dict[str, Any], episodes: int, seed: int) -> None:
        """`ops` as `operators.resolve` takes them; `arguments` of the environments; ValueError names a bad value."""
        if episodes < 1:
            raise ValueError(f"eval_episodes is {episodes}; expected 1 or more")
        self.seed = seed
        self.envs = [
            ConstructVectorEnv(episodes, operator=op, autoreset_mode="Disabled", **arguments) for op in operators.resolve(ops)
        ]

    def score(self, learner: Learner, model: Any) -> dict[str, float]:
        """Geometric mean over operators of the best program's latency over the roofline floor: 1 is the least there can be."""
        rng = np.random.default_rng(self.seed)
        logs = []
        for envs in self.envs:
            sight = learner.sight(envs, 1)
            rollout(learner, model, envs, sight, rng)
            logs.append(np.log(sight.programs()[1].min() / envs.tasks.graphs[0].floor))
        return {"validation_latency_over_floor": float(np.exp(np.mean(logs)))}

    def close(self) -> None:
        """Stop threads."""
        for envs in self.envs:
            envs.close()


def evaluate(config: dict[str, Any], folder: Path) -> dict[str, float]:
    """The policy of a folder by the model, over the operators of `eval_operators` (the validation split).

    The geometric mean of (policy's best of its episodes) / (traverser's best); and over the tasks whose optimum is certified the
    mean regret, latency / optimum - 1, of the greedy episode and of the best of all. Of operators of one axis a policy that
    writes programs column by column is not asked.
    """
    env, seed = config["env"], config["seed"]
    name = "markov_ext" if env["space"] == "extended" else "markov"
    ours = {"greedy": 1, "best": config["eval_episodes"]}
    regrets: dict[str, list[float]] = {asked: [] for asked in ours}
    ratios = []
    kind: type[Ppo | ColumnWriter] = ColumnWriter if config["agent"]["name"] == ColumnWriter.agent else Ppo
    for op in operators.resolve(config["eval_operators"]):
        graph = ConstructionGraph(op, env["hardware"], env["space"])
        if kind is ColumnWriter and not is_joint(graph):
            continue
        rng, certificate = np.random.default_rng(seed), certificate_of(graph)
        for asked, episodes in ours.items():
            strategy = kind(space=env["space"], checkpoint=str(folder), episodes=episodes)
            reached = strategy.construct(graph, rng).latencies[0]
            if certificate is not None:
                regrets[asked].append(reached / certificate.optimum - 1)
        traverser: Any = get_strategy(name, space=env["space"])
        ratios.append(np.log(reached / traverser.construct(graph, rng).latencies[0]))
    known = {f"mean_regret_{asked}": float(np.mean(values)) for asked, values in regrets.items() if values}
    scores = {f"validation_latency_over_{name}": float(np.exp(np.mean(ratios))), "tasks": len(ratios)}
    return scores | known | {"certified": len(regrets["best"])}
