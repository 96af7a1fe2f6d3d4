"""How good a trained policy is on operators it did not learn from, by the model, beside the traverser and the optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.strategy import get_strategy
from experiments.trainings import Training
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificate_of


def evaluate(config: dict[str, Any], folder: Path, training: Training) -> dict[str, float]:
    """The policy of a folder by the model, over the operators of `eval_operators` (the validation split).

    The geometric mean of (policy's best of its episodes) / (traverser's best); and over the tasks whose optimum is certified the
    mean regret, latency / optimum - 1, of the greedy episode and of the best of all. Tasks that are none for such policies are
    left out.
    """
    env, seed = config["env"], config["seed"]
    name = "markov_ext" if env["space"] == "extended" else "markov"
    ours = {"greedy": 1, "best": config["eval_episodes"]}
    regrets: dict[str, list[float]] = {asked: [] for asked in ours}
    ratios = []
    for op in operators.resolve(config["eval_operators"]):
        graph = ConstructionGraph(op, env["hardware"], env["space"])
        if not training.judged_on(graph):
            continue
        rng, certificate = np.random.default_rng(seed), certificate_of(graph)
        for asked, episodes in ours.items():
            strategy = training.strategy(space=env["space"], checkpoint=str(folder), episodes=episodes)
            reached = strategy.construct(graph, rng).latencies[0]
            if certificate is not None:
                regrets[asked].append(reached / certificate.optimum - 1)
        traverser: Any = get_strategy(name, space=env["space"])
        ratios.append(np.log(reached / traverser.construct(graph, rng).latencies[0]))
    known = {f"mean_regret_{asked}": float(np.mean(values)) for asked, values in regrets.items() if values}
    scores = {f"validation_latency_over_{name}": float(np.exp(np.mean(ratios))), "tasks": len(ratios)}
    return scores | known | {"certified": len(regrets["best"])}
