"""The reward of an episode, for all environments: R of the final program, and the reward of a step (docs/design.md).

`env/measured.py` has the reward of `stop` in measured tiers and after a failure.
"""

from __future__ import annotations

import math

from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.graph.compiled import lean


@lean
def final_reward(floor, seconds):  # noqa: ANN001, ANN201
    """R = max(0, log(T_cap / T)), T_cap being CAP_OVER_FLOOR times the roofline floor of the task, both in seconds."""
    return max(0.0, math.log(CAP_OVER_FLOOR * floor / seconds))


@lean
def improvement(floor, best, seconds):  # noqa: ANN001, ANN201
    """Gain in R of a program over the best before it (infinite seconds for none); 0 if it is no faster."""
    if best == math.inf:
        return final_reward(floor, seconds)
    return max(0.0, final_reward(floor, seconds) - final_reward(floor, best))


@lean
def step_reward(before, after, discount, step_cost):  # noqa: ANN001, ANN201
    """Gamma * Phi(s') - Phi(s) - c, of the potentials before and after a step."""
    return discount * after - before - step_cost
