"""Seeded episodes of every registered environment: observations of every kind, masks, rewards."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from tests.identical.digests import observed, of, reward
from tests.identical.files import found
from tests.support.tuning_files import CACHE

CONSTRUCT, RECORDED = "gensor_gym/Construct-v0", "gensor_gym/Recorded-v0"
STEPS = 40
ILLEGAL = 0.05
"""Share of actions that are drawn from all there are."""

_GEMM, _CONV = "gemm(m=64, n=48, k=40)", 'conv2d(n=1, c=32, h=10, w=12, k=32, r=3, s=3, padding=1, dtype="float16")'
CONSTRUCTIONS: dict[str, dict[str, Any]] = {
    "flat": {"operator": _GEMM, "hardware": "h200"},
    "flat, tree": {"operator": "reduce_sum(m=64, k=4000)", "hardware": "a100", "space": "tree"},
    "flat, CPU": {"operator": "gemm(m=200, n=136, k=96)+bias+gelu", "hardware": "cascade_lake", "space": "extended"},
    "dict": {"operator": _CONV, "hardware": "h200", "space": "extended", "observation": "dict"},
    "successors": {"operator": "gemv(m=100, k=333)", "hardware": "t4", "space": "medium", "observation": "successors"},
    "graph": {"operator": "max_pool2d(n=2, c=8, h=12, w=12, r=2, s=2, stride=2, padding=0)", "hardware": "zen5_1c",
              "space": "extended", "observation": "graph"},
    "without shaping": {"operator": _GEMM, "hardware": "h200", "space": "compact", "shaping": False, "discount": 0.99},
    "of several": {"operator": [_GEMM, "gemv(m=100, k=333)"], "hardware": "cascade_lake"},
    "recorded": {"operator": "gemv(m=512, k=512)", "hardware": "zen5_1c", "space": "compact", "backend": "recorded"},
    "recorded, one sample": {"operator": "gemm(m=64, n=64, k=512)", "hardware": "zen5_1c", "space": "compact",
                             "backend": "recorded", "timing": "fresh"},
    "recorded on a GPU": {"operator": "gemm(m=1024, n=1024, k=1024)", "hardware": "h100", "space": "compact",
                          "backend": "recorded"},
}  # fmt: skip


def episodes(count: int = 1) -> dict[str, str]:
    """So many episodes of every environment and kind of observation, seed after seed."""
    spaces = {"of a cache": CACHE} | dict(found("pnpoly/RTX_3090.json.gz", "dedispersion/A100.json.gz"))
    tasks = [(CONSTRUCT, name, arguments) for name, arguments in CONSTRUCTIONS.items()]
    tasks += [(RECORDED, name, {"path": str(path), "timing": "median" if path == CACHE else "reported"})
              for name, path in spaces.items()]  # fmt: skip
    digests = {f"{env_id} {name} {seed}": of(played(env_id, arguments, seed))
               for env_id, name, arguments in tasks for seed in range(count)}  # fmt: skip
    return digests | {f"vector of {CONSTRUCT} {mode}": of(side_by_side(mode)) for mode in ("NextStep", "SameStep")}


def played(env_id: str, arguments: dict[str, Any], seed: int) -> list[Any]:
    """All that an episode says: observation, mask and reward of every step. It is over by the horizon at the latest."""
    env = gymnasium.make(env_id, **arguments)
    observation, info = env.reset(seed=seed)
    rng, ended = np.random.default_rng([7, seed]), False
    said: list[Any] = [[observed(observation), observed(info["action_mask"])]]
    while not ended:
        action = drawn(info["action_mask"], rng, stop=len(said) > STEPS)
        observation, gained, ended, truncated, info = env.step(action)
        regret = info.get("regret")
        said.append([
            action, observed(observation), observed(info["action_mask"]), reward(gained), bool(ended), bool(truncated),
            None if regret is None else reward(regret),
        ])  # fmt: skip
    env.close()
    return said


def drawn(mask: np.ndarray, rng: np.random.Generator, stop: bool) -> int:
    """A legal action, seldom any; `stop` (the first) only where it is asked for, or nothing else is legal."""
    legal = np.flatnonzero(mask)[1:]
    if stop or not len(legal):
        return 0
    return int(rng.integers(1, len(mask)) if rng.random() < ILLEGAL else rng.choice(legal))


def side_by_side(mode: str) -> list[Any]:
    """Four constructions stepped together, which end and begin again."""
    env = gymnasium.make_vec(
        CONSTRUCT, num_envs=4, operator=[_GEMM, _CONV], hardware="h200", space="extended", threads=1,
        autoreset_mode=gymnasium.vector.AutoresetMode(mode),
    )  # fmt: skip
    observation, info = env.reset(seed=3)
    rng, said = np.random.default_rng(7), []
    for step in range(STEPS):
        said.append([observed(observation), observed(info["action_mask"])])
        actions = np.array([drawn(mask, rng, stop=(step + at) % 9 == 8) for at, mask in enumerate(info["action_mask"])])
        observation, gained, ended, _, info = env.step(actions)
        said.append([list(map(reward, gained)), ended.tolist()])
    env.close()
    return said
