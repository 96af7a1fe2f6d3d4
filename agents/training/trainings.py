"""The kinds of training: how each agent's policies are trained, and evaluated with the model on held-out operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from agents.columns.choices import SEES, is_joint
from agents.columns.policy import ColumnWriter
from agents.fused.policy import GirPpo
from agents.policies.ppo import Ppo
from agents.runs.lines import with_bar
from agents.strategy import get_strategy
from agents.training import columns as train_columns
from agents.training import fused as train_fused
from agents.training import walk as train_walk
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact.shipped import certificate_of


@dataclass(frozen=True)
class Training:
    """A kind of training: how an agent's policies are trained and evaluated."""

    learn: Callable[[dict[str, Any], Path, Console], tuple[Any, float, bool]]
    """Train a policy: (configuration, folder, console) -> (saved learner, seconds of training, whether it was resumed).

    The learner has `num_timesteps`.
    """
    strategy: type[Ppo | ColumnWriter | GirPpo]
    """Class of the strategy that constructs programs with the trained policy."""
    judged_on: Callable[[ConstructionGraph], bool] = lambda _graph: True
    """Function that says whether the trained policies can be evaluated on a task."""
    sees: int | None = None
    """Version of what the policies observe, if neither the layout of a row nor the fingerprint implies it."""
    shows_itself: bool = True
    """Whether the learner writes TensorBoard events itself."""
    fused: bool = False
    """Whether the training tasks are fused operators."""


WALK = Training(train_walk.learn, Ppo)
"""Kind of training of all agents in `agents.learners.registry`."""
OTHERS = {
    ColumnWriter.agent: Training(train_columns.learn, ColumnWriter, is_joint, SEES, shows_itself=False),
    GirPpo.agent: Training(train_fused.learn, GirPpo, fused=True),
}


def training_of(agent: str) -> Training:
    """Return the kind of training of an agent: `WALK` if the agent has none of its own.

    `WALK.learn` reports an unknown agent.
    """
    return OTHERS.get(agent, WALK)


def judged(config: dict[str, Any]) -> list[Any]:
    """Return the tasks of `eval_operators` on which policies of the configuration's agent can be evaluated."""
    env, training = config["env"], training_of(config["agent"]["name"])
    if training.fused:
        return train_fused.graphs_of(config["eval_operators"], env)
    graphs = (ConstructionGraph(op, env["hardware"], env["space"]) for op in operators.resolve(config["eval_operators"]))
    return [graph for graph in graphs if training.judged_on(graph)]


def evaluate(config: dict[str, Any], folder: Path, console: Console) -> dict[str, float]:
    """Evaluate a folder's policy by the model on `eval_operators` (the validation split); return its scores by name.

    One score is the geometric mean of (latency of the best of the policy's episodes) / (latency of the traverser's best program).
    Two other scores are mean regrets, latency / optimum - 1, of the greedy episode and of the best episode, over the tasks with a
    certified optimum. Tasks unsuited to such policies are left out. Every construction has random numbers of its own, so that all
    policies are compared with the same walks.
    """
    if training_of(config["agent"]["name"]).fused:
        return train_fused.evaluate(config, folder, console)
    env, seed = config["env"], config["seed"]
    name = "markov_ext" if env["space"] == "extended" else "markov"
    ours = {"greedy": 1, "best": config["eval_episodes"]}
    regrets: dict[str, list[float]] = {asked: [] for asked in ours}
    ratios = []
    kind, graphs = training_of(config["agent"]["name"]).strategy, judged(config)
    console.print(f"Trained. Its programs are judged now, on eval_operators ({len(graphs)}).", soft_wrap=True)
    for graph in with_bar(console, "judging", graphs, len(graphs)):
        certificate = certificate_of(graph)
        for asked, episodes in ours.items():
            strategy = kind(space=env["space"], checkpoint=str(folder), episodes=episodes)
            found = strategy.construct(graph, np.random.default_rng(seed)).latencies
            reached = found[0] if found else graph.latency(graph.initial())  # no program that fits was written
            if certificate is not None:
                regrets[asked].append(reached / certificate.optimum - 1)
        traverser: Any = get_strategy(name, space=env["space"])
        ratios.append(np.log(reached / traverser.construct(graph, np.random.default_rng(seed)).latencies[0]))
    known = {f"mean_regret_{asked}": float(np.mean(values)) for asked, values in regrets.items() if values}
    scores = {f"validation_latency_over_{name}": float(np.exp(np.mean(ratios))), "tasks": len(ratios)}
    return scores | known | {"certified": len(regrets["best"])}
