"""Benchmark of uniform play in `Construct-v0`: actions drawn uniformly from the legal actions, including `stop`.

The length of an episode and the number of evaluated programs describe an untrained policy. The regret of one episode, and of the
best of several, is the baseline for learning. It is played with every reward. Times come from the model, and the tasks have a
certified optimum.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from omegaconf import DictConfig

from agents.runs import texts
from experiments.benches.lines import Lines, machine
from gensor_gym.env import CONSTRUCT


def run(config: DictConfig, emit: Lines) -> None:
    """Play with every reward on every operator; emit one line for each pair, and print all as a table.

    Raise ValueError if an operator has no certified optimum.
    """
    settings = config.uniform
    emit(kind="machine", **machine())
    for operator in settings.operators:
        for reward in settings.rewards:
            arguments = {"operator": operator, "hardware": settings.hardware, "space": settings.space, "reward": reward}
            found = played(arguments, settings.episodes, config.seed)
            emit(kind="uniform", **arguments, **summary(found, settings.tries))
    sys.stdout.write(table(emit.rows))


def played(arguments: dict[str, Any], episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Play episodes of random legal actions; return float64 [episodes] arrays `regret`, `length` and `paid`.

    `length` is the number of actions, `paid` the number of programs that the reward evaluated. Raise ValueError if the operator
    has no certified optimum.
    """
    envs = gymnasium.make_vec(CONSTRUCT, num_envs=episodes, autoreset_mode="Disabled", **arguments)
    rng, inner = np.random.default_rng(seed), envs.unwrapped
    _, info = envs.reset(seed=seed)
    found = {name: np.full(episodes, np.nan) for name in ("regret", "length", "paid")}
    over = np.zeros(episodes, dtype=np.bool_)
    while not over.all():
        masks = info["action_mask"]
        actions = np.where(masks == 1, rng.random(masks.shape), -1.0).argmax(axis=1)
        _, _, ended, _, info = envs.step(actions)
        if ended.any():
            if "regret" not in info:
                raise ValueError(f"{arguments['operator']} has no certified optimum in {arguments}: expected one that has")
            new = ended & ~over
            found["regret"][new], found["length"][new] = info["regret"][new], info["steps"][new] + 1
            found["paid"][new] = info["paid"][new] if "paid" in info else 1
            over |= ended
            _, again = envs.reset(options={"reset_mask": ended})
            info = info | {"action_mask": again["action_mask"]}
    inner.close()
    return found


def summary(found: dict[str, np.ndarray], tries: int) -> dict[str, Any]:
    """Return mean length, mean number of evaluated programs, and median regrets of an episode and of the best of `tries`."""
    rounds = found["regret"][: len(found["regret"]) // tries * tries].reshape(-1, tries)
    return {
        "episodes": len(found["regret"]), "steps_of_an_episode": float(found["length"].mean()),
        "programs_paid_for": float(found["paid"].mean()), "regret": float(np.median(found["regret"])),
        "tries": tries, "regret_of_best": float(np.median(rounds.min(axis=1))),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table by reward: means over operators, and median regrets in percent above the optimum."""
    own = [row for row in rows if row["kind"] == "uniform"]
    rewards = list(dict.fromkeys(row["reward"] for row in own))
    tries = own[0]["tries"] if own else 0
    head = ("reward", "steps of an episode", "programs paid for", "regret of one", f"of the best of {tries}")
    lines = []
    for reward in rewards:
        these = [row for row in own if row["reward"] == reward]
        steps, paid = (np.mean([row[name] for row in these]) for name in ("steps_of_an_episode", "programs_paid_for"))
        one, best = (100 * np.expm1(np.median([row[name] for row in these])) for name in ("regret", "regret_of_best"))
        lines.append((reward, f"{steps:.1f}", f"{paid:.1f}", f"{one:,.0f} %", f"{best:,.0f} %"))
    return "\n".join(texts.table(head, lines)) + "\n"
