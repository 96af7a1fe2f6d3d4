"""The compiled decision process. It steps a range of episodes; one environment and thousands use the same code.

The finite-horizon process of `docs/design.md`: Phi(s) = log(T_model(s0) / T_model(s)); a step pays discount * Phi(s') - Phi(s) -
step_cost; `stop` pays R - Phi(s). The caller adds R if it is measured. With `reward="best_so_far"`, `stop` pays the gain in R
over the best program, plus the reward of a step without a change, and the episode continues; its last step pays gain - Phi(s).
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.cost.model import latency
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.episodes.scalars import (
    BEST,
    GOES_ON,
    LATENCY,
    MODEL_REWARD,
    PAID,
    POTENTIAL,
    REMAINING,
    START_LATENCY,
    STEPS,
)
from gensor_gym.env.observation import NUM_DYNAMIC, NUM_FEATURES, OFFSETS, fill_dynamic
from gensor_gym.env.reward import improvement, step_reward
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.compiled import compiled, early, lean
from gensor_gym.graph.rules import apply, fill_mask
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.graph.tables.tables import FLOOR, HORIZON

REMAINING_AT = OFFSETS["remaining"]


@lean
def look(task, row, scalars, ints, floats, scratch, room, terms, obs):  # noqa: ANN001, ANN201
    """Write latency and potential of a state into `scalars`, and the state's dynamic features into `obs`.

    `scratch` int32 [ROW], `terms` float64 [NUM_TERMS] and `room` (from `cost.model.room`) are scratch space.
    """
    seconds = latency(row, ints[task], floats[task], terms, scratch, room)
    scalars[LATENCY] = seconds
    scalars[POTENTIAL] = math.log(scalars[START_LATENCY] / seconds)
    fill_dynamic(row, seconds, terms, scalars[REMAINING], ints[task], floats[task], obs)


@lean
def observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs):  # noqa: ANN001, ANN201
    """Write latency, potential and dynamic features (`look`), and the mask."""
    look(task, row, scalars, ints, floats, scratch, room, terms, obs)
    if scalars[REMAINING] <= 1:
        leave_stop(mask)
    else:
        fill_mask(row, ints[task], sizes[task], scratch, mask)


@lean
def leave_stop(mask):  # noqa: ANN001, ANN201
    """Write a mask in which only `stop` is legal."""
    for action in range(mask.shape[0]):
        mask[action] = action == STOP


@lean
def open_episode(task, scalars, ints, floats, static, initial, starts, scratch, room, terms, obs):  # noqa: ANN001, ANN201
    """Write the scalars and constant features of a new episode.

    Potentials are relative to the latency of the task's unscheduled program, initial[task]. `starts` [K] caches that latency; 0
    means not computed yet.
    """
    if starts[task] == 0.0:
        starts[task] = latency(initial[task], ints[task], floats[task], terms, scratch, room)
    scalars[START_LATENCY] = starts[task]
    scalars[REMAINING] = ints[task, HORIZON]
    scalars[STEPS] = 0
    scalars[BEST] = math.inf
    scalars[PAID] = 0
    for i in range(NUM_DYNAMIC, NUM_FEATURES):
        obs[i] = static[task, i - NUM_DYNAMIC]


@lean
def begin(task, row, scalars, ints, floats, sizes, static, initial, starts, scratch, room, terms, mask, obs):  # noqa: ANN001, ANN201
    """Start an episode at `row`."""
    open_episode(task, scalars, ints, floats, static, initial, starts, scratch, room, terms, obs)
    observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs)


@lean
def pay(task, scalars, ints, floats, settings, mask, obs):  # noqa: ANN001, ANN201
    """Do `stop`; return (reward, terminated). It ends the episode, unless `reward="best_so_far"` and steps are left.

    If the backend measures, the caller adds the final reward R, or the gain in R over the best program before.
    """
    before, gain = settings[2] * scalars[POTENTIAL], 0.0
    if settings[3] == MODEL_REWARD:
        best = scalars[BEST] if settings[4] == GOES_ON else math.inf
        gain = improvement(floats[task, FLOOR], best, scalars[LATENCY])
    scalars[REMAINING] -= 1
    ends = settings[4] != GOES_ON or scalars[REMAINING] <= 0
    if ends or scalars[REMAINING] <= 1:
        leave_stop(mask)
    fill_remaining(scalars, ints[task], obs)
    if ends:
        return gain - before, True
    scalars[STEPS] += 1
    return gain + step_reward(before, before, settings[0], settings[1]), False


@lean
def advance(task, row, scalars, action, ints, floats, sizes, settings, scratch, room, terms, mask, obs):  # noqa: ANN001, ANN201
    """Take one step in place; return (reward, terminated).

    settings = [discount, step_cost, shaping, whether the backend is the model, whether `stop` continues]. `mask` is the mask of
    `row`, so legality is not computed again. An illegal action changes nothing and costs its step; with one step left any action
    counts as `stop`.
    """
    if action == STOP or scalars[REMAINING] <= 1:
        return pay(task, scalars, ints, floats, settings, mask, obs)
    before = settings[2] * scalars[POTENTIAL]
    scalars[REMAINING] -= 1
    scalars[STEPS] += 1
    if 0 <= action < mask.shape[0] and mask[action] == 1:
        apply(row, action, ints[task], sizes[task])
        observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs)
    else:
        stand_still(task, scalars, ints, mask, obs)
    return step_reward(before, settings[2] * scalars[POTENTIAL], settings[0], settings[1]), False


@lean
def stand_still(task, scalars, ints, mask, obs):  # noqa: ANN001, ANN201
    """Write observation and mask after an illegal action, which only uses up a step."""
    fill_remaining(scalars, ints[task], obs)
    if scalars[REMAINING] <= 1:
        leave_stop(mask)


@lean
def fill_remaining(scalars, ints, obs):  # noqa: ANN001, ANN201
    """Write only the group `remaining` of an observation."""
    obs[REMAINING_AT] = scalars[REMAINING] / ints[HORIZON]
    obs[REMAINING_AT + 1] = math.log2(scalars[REMAINING] + 1.0) / 8.0


@early
def begin_one(task, row, scalars, ints, floats, sizes, static, initial, starts, room, mask, obs):  # noqa: ANN001, ANN201
    """Do `begin` for a single environment. Allocate the scratch space."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    begin(task, row, scalars, ints, floats, sizes, static, initial, starts, scratch, room, terms, mask, obs)


@early
def step_one(task, row, scalars, action, ints, floats, sizes, settings, room, mask, obs):  # noqa: ANN001, ANN201
    """Do `advance` for a single environment. Allocate the scratch space."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    return advance(task, row, scalars, action, ints, floats, sizes, settings, scratch, room, terms, mask, obs)


@compiled
def step_range(
    low, high, tasks, rows, scalars, actions, skip, ints, floats, sizes, settings, room, masks, obs, rewards, ended
):  # noqa: ANN001, ANN201
    """Do `advance` for environments low..high-1. Those with `skip` set stay unchanged and get reward 0."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    _step_each(
        low, high, tasks, rows, scalars, actions, skip, ints, floats, sizes, settings, masks, obs, rewards, ended, scratch,
        room, terms,
    )  # fmt: skip


@lean
def _step_each(
    low, high, tasks, rows, scalars, actions, skip, ints, floats, sizes, settings, masks, obs, rewards, ended, scratch,
    room, terms
):  # noqa: ANN001, ANN202  # fmt: skip
    for b in range(low, high):
        rewards[b], ended[b] = 0.0, False
        if not skip[b]:
            rewards[b], ended[b] = advance(
                tasks[b], rows[b], scalars[b], actions[b], ints, floats, sizes, settings, scratch, room, terms, masks[b], obs[b]
            )


@compiled
def begin_range(chosen, tasks, rows, scalars, ints, floats, sizes, static, initial, starts, room, masks, obs):  # noqa: ANN001, ANN201
    """Do `begin` for every environment in `chosen`."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    for b in chosen:
        begin(
            tasks[b], rows[b], scalars[b], ints, floats, sizes, static, initial, starts, scratch, room,
            terms, masks[b], obs[b],
        )
