"""Train policies of `Gir-v0` for fused operators, for `gensor train`. These policies are trained like other walking policies."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from agents.fused.policy import GirPpo, fused_learner
from agents.policies.fused_parts import fused_operators, is_fused
from agents.runs.lines import with_bar
from agents.training import walk
from gensor_gym import hardware as machines
from gensor_gym.env.fused.env import GirVectorEnv
from gensor_gym.gir.actions import SPACES
from gensor_gym.gir.graph import GirGraph


def graphs_of(given: Any, env: dict[str, Any]) -> list[GirGraph]:
    """Make the graphs of fused operators. ValueError if the space is not one of fused operators."""
    if not is_fused(env["space"]):
        raise ValueError(f"env.space {env['space']!r}: expected one of {', '.join(SPACES)}, of fused operators")
    return [GirGraph(op, machines.get(env["hardware"]), env["space"]) for op in fused_operators(given)]


def _training(config: dict[str, Any]) -> Any:
    from gensor_gym.env.sb3 import make_fused_sb3

    given = {"clone": config["clone"], "variants": config["variants"], "drawn.count": (config.get("drawn") or {}).get("count", 0)}
    for name, none in (("clone", None), ("variants", 0), ("drawn.count", 0)):
        if given[name] != none:
            raise ValueError(f"{name} is {given[name]!r}; expected {none!r} of agent {GirPpo.agent!r}")
    return make_fused_sb3(config["num_envs"], operator=fused_operators(config["operators"]), **config["env"])


GROUND = walk.Ground(lambda _: fused_learner(), _training, fused_operators, GirVectorEnv)
learn = functools.partial(walk.learn, ground=GROUND)


def evaluate(config: dict[str, Any], folder: Path, console: Console) -> dict[str, float]:
    """Return the mean regret, T / T* - 1, of a folder's policy over `eval_operators`.

    The mean is computed for the greedy episode and for the best of `eval_episodes` episodes.
    """
    regrets: dict[str, list[float]] = {"greedy": [], "best": []}
    graphs = graphs_of(config["eval_operators"], config["env"])
    for graph in with_bar(console, "judging", graphs, len(graphs)):
        for name, episodes in (("greedy", 1), ("best", config["eval_episodes"])):
            strategy = GirPpo(space=config["env"]["space"], checkpoint=str(folder), episodes=episodes)
            reached = strategy.construct(graph, np.random.default_rng(config["seed"])).latencies[0]  # type: ignore[arg-type]
            regrets[name].append(reached / graph.optimum()[1] - 1)
    means = {f"mean_regret_{name}": float(np.mean(values)) for name, values in regrets.items()}
    over = float(np.exp(np.mean(np.log1p(regrets["best"]))))
    return {"validation_latency_over_optimum": over, "tasks": len(graphs)} | means
