"""Seeds of training runs. A vector environment seeds environment i with seed + i, like Gymnasium and stable-baselines3."""

from __future__ import annotations

import numpy as np


def seed_of_run(seed: int) -> int:
    """Hash the seed of a run to a seed below 2**31 for its learner and environments.

    Environment i gets seed + i, so runs with the seeds n and n + 1 would share random streams without the hash.
    """
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
