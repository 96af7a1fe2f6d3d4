"""Measure which kinds of programs are written: `python -m experiments.studies.columns.shares [FOLDER]`.

A choice that is compatible with few other choices may almost never be reached by chance, and then a policy never learns it. The
page, `results/columns/shares.md`, gives the share of programs with each such choice: in uniform play in `Write-v0`, among a
policy's first ten programs, and among the first ten of `markov_ext`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from gymnasium.vector import AutoresetMode

from agents.runs.settings import ROOT
from agents.runs.texts import page, table
from experiments.studies.columns.gate import DTYPES, HARDWARE, SPACE, of_policy, of_traverser, validation
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.env import WriteVectorEnv
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import CLUSTER, PERSISTENT, SPLIT_K, TENSOR_CORE

PAGE = ROOT / "results" / "columns" / "shares.md"
POLICY = "agents/data/policies/columns_extended_gpu"
KINDS: dict[str, Callable[[np.ndarray], bool]] = {
    "mma.sync": lambda row: row[TENSOR_CORE] == 1, "wgmma": lambda row: row[TENSOR_CORE] == 2,
    "cluster": lambda row: row[CLUSTER] > 0, "persistent": lambda row: row[PERSISTENT] > 0,
    "split_k": lambda row: row[SPLIT_K] > 0,
}  # fmt: skip
"""Kind of program -> condition on the row of a schedule."""
EPISODES = 256


def uniform(graph: ConstructionGraph, seed: int = 0) -> list[Schedule]:
    """Legal programs of episodes in which every decision is uniform among the unmasked options."""
    tasks = graph.operator, HARDWARE, "analytic", SPACE
    envs = WriteVectorEnv(EPISODES, *tasks, choices="columns", autoreset_mode=AutoresetMode.DISABLED, threads=1)
    rng = np.random.default_rng(seed)
    info = envs.reset(seed=seed)[1]
    for _ in envs.tasks.decisions[0]:
        mask = info["action_mask"]
        info = envs.step((rng.random(mask.shape) * mask).argmax(axis=1))[-1]
    found = [Schedule(row) for row, seconds in zip(envs.rows, info["runtime_s"], strict=True) if np.isfinite(seconds)]
    envs.close()
    return found


def shares(programs: Sequence[Schedule]) -> dict[str, float]:
    """Share of each kind among the programs; 0 if there are no programs."""
    return {name: float(np.mean([of(schedule.row) for schedule in programs] or [False])) for name, of in KINDS.items()}


def markdown(policy: str) -> str:
    """Markdown text of the page."""
    sources: dict[str, Callable[[ConstructionGraph], list[Schedule]]] = {
        "uniform play": uniform, "policy": lambda graph: of_policy(policy, graph)[0],
        "`markov_ext`": lambda graph: of_traverser(graph)[0],
    }  # fmt: skip
    rows = []
    for dtype in DTYPES:
        for name, programs in sources.items():
            found = [shares(programs(graph)) for graph in validation(dtype)]
            rows.append((f"{dtype}, {name}", *(f"{np.mean([one[kind] for one in found]):.2f}" for kind in KINDS)))
    lines = [
        "# Kinds of programs that are written", "",
        "By `python -m experiments.studies.columns.shares`: share among legal programs, mean over the validation operators of",
        f"the gate, on the model of an H100. Uniform play: {EPISODES} episodes of `Write-v0`, choices by columns; policy",
        f"`{policy.rpartition('/')[2]}` and `markov_ext`: the first ten programs.", "",
    ]  # fmt: skip
    return page([*lines, *table(("operators, programs of", *KINDS), rows)], ())


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(markdown(sys.argv[1] if len(sys.argv) > 1 else POLICY), encoding="utf-8")
