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
    """Evaluate a state with the model: write its time and potential into `scalars`, and its features into `obs`.

    Only the features that change from step to step are written. `scratch` int32 [ROW], `terms` float64 [NUM_TERMS] and `room`
    (from `cost.model.room`) are working memory that the caller provides.
    """
    seconds = latency(row, ints[task], floats[task], terms, scratch, room)
    scalars[LATENCY] = seconds
    scalars[POTENTIAL] = math.log(scalars[START_LATENCY] / seconds)
    fill_dynamic(row, seconds, terms, scalars[REMAINING], ints[task], floats[task], obs)


@lean
def observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs):  # noqa: ANN001, ANN201
    """Write everything that an agent sees of a state: its features into `obs`, and the legal actions into `mask`.

    The time and the potential of the state are written into `scalars`. With one step left only `stop` is legal.
    """
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
    """Reset the numbers of an episode in `scalars`, and write the features that stay constant in the episode into `obs`.

    Potentials are relative to the time of the task's unscheduled program, initial[task]. `starts` [K] caches that time for each
    of K tasks; 0 means not computed yet.
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
    """Start an episode at the schedule `row`: write its scalars, features and mask."""
    open_episode(task, scalars, ints, floats, static, initial, starts, scratch, room, terms, obs)
    observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs)


@lean
def pay(task, scalars, ints, floats, settings, mask, obs):  # noqa: ANN001, ANN201
    """Perform the action `stop`, and return (reward, whether the episode ended).

    The episode ends, unless `reward="best_so_far"` and steps are left. If the backend measures programs, the reward lacks the
    final reward R (or the gain in R over the best program so far), which the caller adds.
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
    """Take one step of an episode in place, and return (reward, whether the episode ended).

    settings = [discount, step_cost, shaping, whether the backend is the model, whether the episode continues after `stop`].
    `mask` must hold the legal actions of `row`, and receives those of the next state. An illegal action changes nothing and costs
    its step; with one step left any action counts as `stop`.
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
    """Update features and mask after an illegal action, which only uses up a step."""
    fill_remaining(scalars, ints[task], obs)
    if scalars[REMAINING] <= 1:
        leave_stop(mask)


@lean
def fill_remaining(scalars, ints, obs):  # noqa: ANN001, ANN201
    """Write the two features of the steps left (group `remaining`) into `obs`, and nothing else."""
    obs[REMAINING_AT] = scalars[REMAINING] / ints[HORIZON]
    obs[REMAINING_AT + 1] = math.log2(scalars[REMAINING] + 1.0) / 8.0


@early
def begin_one(task, row, scalars, ints, floats, sizes, static, initial, starts, room, mask, obs):  # noqa: ANN001, ANN201
    """Start the episode of a single environment (`begin`), with working memory allocated here."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    begin(task, row, scalars, ints, floats, sizes, static, initial, starts, scratch, room, terms, mask, obs)


@early
def step_one(task, row, scalars, action, ints, floats, sizes, settings, room, mask, obs):  # noqa: ANN001, ANN201
    """Take one step of a single environment (`advance`), with working memory allocated here."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    return advance(task, row, scalars, action, ints, floats, sizes, settings, scratch, room, terms, mask, obs)


@early
def leap_one(task, row, scalars, target, ints, floats, sizes, settings, room, mask, obs):  # noqa: ANN001, ANN201
    """Take a step of a single environment to the legal schedule `target` [ROW], and return its reward.

    It is rewarded and costs as much as a primitive. At least two steps must be left.
    """
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    before = settings[2] * scalars[POTENTIAL]
    scalars[REMAINING] -= 1
    scalars[STEPS] += 1
    for i in range(ROW):
        row[i] = target[i]
    observe(task, row, scalars, ints, floats, sizes, scratch, room, terms, mask, obs)
    return step_reward(before, settings[2] * scalars[POTENTIAL], settings[0], settings[1])


@compiled
def step_range(
    low, high, tasks, rows, scalars, actions, skip, ints, floats, sizes, settings, room, masks, obs, rewards, ended
):  # noqa: ANN001, ANN201
    """Take one step in each of the environments low..high-1 (`advance`).

    Environments with `skip` set stay unchanged and get reward 0.
    """
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
    """Start an episode in each of the environments with the indices `chosen` (`begin`)."""
    scratch = np.empty(ROW, dtype=np.int32)
    terms = np.empty(NUM_TERMS, dtype=np.float64)
    for b in chosen:
        begin(
            tasks[b], rows[b], scalars[b], ints, floats, sizes, static, initial, starts, scratch, room,
            terms, masks[b], obs[b],
        )
