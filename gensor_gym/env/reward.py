"""Rewards that all environments share: R of the final program, and the reward of a step (docs/design.md).

`env/measured.py` computes R of measured programs and after a failure.
"""

from __future__ import annotations

import math

from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.graph.compiled import lean


@lean
def final_reward(floor, seconds):  # noqa: ANN001, ANN201
    """Compute the final reward R = max(0, log(T_cap / T)) of a program that takes T = `seconds`.

    T_cap is 1000 (`CAP_OVER_FLOOR`) times `floor`, the task's roofline floor in seconds.
    """
    return max(0.0, math.log(CAP_OVER_FLOOR * floor / seconds))


@lean
def improvement(floor, best, seconds):  # noqa: ANN001, ANN201
    """Compute by how much a program's final reward R exceeds that of the best program before it; 0 if it is not faster.

    `best` and `seconds` are times in seconds. `best` is infinite before the first program.
    """
    if best == math.inf:
        return final_reward(floor, seconds)
    return max(0.0, final_reward(floor, seconds) - final_reward(floor, best))


@lean
def step_reward(before, after, discount, step_cost):  # noqa: ANN001, ANN201
    """Compute the reward of a step, discount * Phi(s') - Phi(s) - step_cost.

    `before` and `after` are the potentials Phi(s) and Phi(s') of the states before and after the step.
    """
    return discount * after - before - step_cost
