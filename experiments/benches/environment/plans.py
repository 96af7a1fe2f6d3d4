"""Steps a second of the vector form of `gensor_gym/Fuse-v0`.

`python -m experiments.benches.environment.plans PROCESSES NETWORKS`: each process plays fresh random
decisions on the first networks of the part `train`, after a warm-up that prices their pieces.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

import numpy as np

from gensor_gym.env.planning.env import FuseVectorEnv
from gensor_gym.networks.planning.drawn import names_of

ENVS, REPEATS = 64, 9


def rates(networks: int, seed: int, warm: int = 1500, timed: int = 100, barrier: Any = None) -> list[float]:
    """Steps a second in each of the repeats of `timed` steps of all environments, after `warm` steps and the barrier."""
    envs, rng = FuseVectorEnv(ENVS, names_of("train")[:networks], "cascade_lake"), np.random.default_rng(seed)
    _, info = envs.reset(seed=seed)

    def play(steps: int) -> None:
        nonlocal info
        for _ in range(steps):
            masks = info["action_mask"].astype(bool)
            masks[:, 0] = ~masks[:, 1:].any(axis=1)
            info = envs.step((rng.random(masks.shape) * masks).argmax(axis=1))[4]

    play(warm)
    if barrier is not None:
        barrier.wait()
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        play(timed)
        found.append(ENVS * timed / (time.perf_counter() - begin))
    return found


def _answer(networks: int, seed: int, barrier: Any, answers: Any) -> None:
    answers.put(rates(networks, seed, barrier=barrier))


def main(count: int, networks: int) -> None:
    """Print the sum of the medians of `count` processes that play at once."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(count), context.Queue()
    processes = [context.Process(target=_answer, args=(networks, seed, barrier, answers)) for seed in range(count)]
    for process in processes:
        process.start()
    medians = [float(np.median(answers.get())) for _ in processes]
    for process in processes:
        process.join()
    print(f"{sum(medians):.0f} steps a second in {count} processes: {' + '.join(f'{median:.0f}' for median in medians)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
