"""Welch's test errs as often as its level says: what a mutation showed that no other test looks at."""

from __future__ import annotations

import numpy as np
import pytest

from agents.core.significance import is_faster


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_alike_kernels_are_called_faster_at_half_the_level(level: float) -> None:
    """Two-sided: half of the errors call the first faster, half the second."""
    rng, draws = np.random.default_rng(0), 3000
    alarms = sum(is_faster(rng.normal(100.0, 1.0, 12).tolist(), rng.normal(100.0, 2.0, 9).tolist(), level) for _ in range(draws))
    assert alarms / draws == pytest.approx(level / 2, abs=3.5 * (level / 2 / draws) ** 0.5)
