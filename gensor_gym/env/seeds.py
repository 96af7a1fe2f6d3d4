"""Seeds of runs: of vector environments number i is seeded with seed + i, as Gymnasium and stable-baselines3 do."""

from __future__ import annotations

import numpy as np


def seed_of_run(seed: int) -> int:
    """Seed of a run's learner and environments, below 2**31. Using the run's own seed, neighbouring runs would share streams."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
