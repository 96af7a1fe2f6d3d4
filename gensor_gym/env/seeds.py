"""Seeds of runs. A vector environment seeds environment i with seed + i, like Gymnasium and stable-baselines3."""

from __future__ import annotations

import numpy as np


def seed_of_run(seed: int) -> int:
    """Seed below 2**31 for a run's learner and environments, hashed so that runs with seeds n and n + 1 share no streams."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
