"""Compiled walk of the traverser over the construction graph; many run in parallel.

The walk is a Markov chain: the next primitive depends only on the current program, the number of steps at its memory level, the
hardware and the temperature. Each step draws a legal primitive a with probability P(a) proportional to its benefit B(a)^(1 /
temperature).
"""

from __future__ import annotations

import math

import numpy as np

from agents.gensor.benefits import cache_benefit, conflicts, difference_score, occupied, traffic
from gensor_gym.cost.model import latency
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.actions import CACHE, KNOB_UP, NUM_ACTIONS, TILE_UP, UNCACHE, VTHREAD_UP
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.rules import apply, fill_mask
from gensor_gym.graph.tables.layout import LEVEL, ROW
from gensor_gym.graph.tables.tables import NUM_LEVELS

TRAFFIC, FOOTPRINT, MODEL, CACHE_WEIGHT, CACHE_GROWTH, CONFLICT, START, FINISH, STEPS, DIFFERENCE = range(10)
NUM_OPTIONS = 10
MOST_IMPROVEMENTS = 512
"""Maximum number of entries of a trace of improvements. When it is full, the last entry is replaced."""


def new_trace() -> np.ndarray:
    """Return an empty trace of a search's improvements, float64 [1 + MOST_IMPROVEMENTS, 2].

    An entry is (number of evaluations so far, fastest seconds). Row 0 is a header: the number of entries, and the number of
    evaluations before the current walk.
    """
    return np.zeros((1 + MOST_IMPROVEMENTS, 2))


def improvements(trace: np.ndarray) -> np.ndarray:
    """Return the entries of a trace in order, float64 [N, 2]: (number of evaluations so far, fastest seconds)."""
    return trace[1 : 1 + int(trace[0, 0])]


@compiled
def uniform(state):  # noqa: ANN001, ANN201
    """Draw a float in [0, 1) and advance the generator's one-element uint64 state (splitmix64).

    The numbers are equal on every thread and machine.
    """
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def seeded(seed):  # noqa: ANN001, ANN201
    """Return the initial state of the random number generator `uniform` for a seed."""
    state = np.empty(1, dtype=np.uint64)
    state[0] = np.uint64(seed)
    return state


@compiled
def log_benefit(action, now, after, row, result, at_level, ints, floats, options):  # noqa: ANN001, ANN201
    """Return the log of the benefit of a primitive that changes program `row` to `result` and its latency `now` to `after`.

    `at_level` is the number of steps since the memory level last changed.
    """
    gain = options[MODEL] * math.log(now / after)
    if TILE_UP <= action < CACHE and options[DIFFERENCE] == 1.0:
        gain += options[TRAFFIC] * math.log(difference_score(row, result, ints))
    elif TILE_UP <= action < CACHE:
        gain += options[TRAFFIC] * math.log(traffic(row, ints) / traffic(result, ints))
        gain += options[FOOTPRINT] * math.log(occupied(row, ints) / occupied(result, ints))
    elif action == CACHE:
        ripeness = options[CACHE_GROWTH] * math.log((at_level + 1.0) / options[STEPS] * ints[NUM_LEVELS])
        gain = options[CACHE_WEIGHT] * math.log(cache_benefit(row, ints, floats)) + ripeness
    elif action == UNCACHE:
        gain = -4.0
    elif VTHREAD_UP <= action < KNOB_UP:
        gain += options[CONFLICT] * math.log(conflicts(row, ints) / conflicts(result, ints))
    return gain


@compiled
def choose(gains, legal, count, temperature, state):  # noqa: ANN001, ANN201
    """Draw one of the first `count` actions of `legal` with probability proportional to exp(gain / temperature).

    `state` is that of the random number generator `uniform`.
    """
    top = gains[0]
    for i in range(count):
        top = max(top, gains[i])
    total = 0.0
    for i in range(count):
        total += math.exp((gains[i] - top) / temperature)
    mark = uniform(state) * total
    for i in range(count):
        mark -= math.exp((gains[i] - top) / temperature)
        if mark <= 0.0:
            return legal[i]
    return legal[count - 1]


@compiled
def keep(rows, seconds, row, new):  # noqa: ANN001, ANN201
    """Insert program `row` with `new` seconds into the sorted list of a walk's best programs, unless it is present.

    The list is rows [R, ROW] and seconds [R], changed in place.
    """
    size = seconds.shape[0]
    if new >= seconds[size - 1]:
        return
    for i in range(size):
        if seconds[i] == new:
            same = True
            for j in range(ROW):
                if j != LEVEL and rows[i, j] != row[j]:
                    same = False
                    break
            if same:
                return
    at = size - 1
    while at > 0 and seconds[at - 1] > new:
        seconds[at] = seconds[at - 1]
        rows[at] = rows[at - 1]
        at -= 1
    seconds[at] = new
    rows[at] = row


@compiled
def note(trace, evaluations, seconds):  # noqa: ANN001, ANN201
    """Add the entry (`evaluations`, `seconds`) to a trace of improvements if `seconds` is a new minimum (see `new_trace`)."""
    if trace.shape[0] < 2:
        return
    filled = int(trace[0, 0])
    if filled > 0 and seconds >= trace[filled, 1]:
        return
    if filled + 1 < trace.shape[0]:
        filled += 1
        trace[0, 0] = filled
    trace[filled, 0], trace[filled, 1] = trace[0, 1] + evaluations, seconds


@compiled
def remember(rows, seconds, trace, row, new, evaluations):  # noqa: ANN001, ANN201
    """Record an evaluated program: among the walk's best programs by `keep`, and in the trace of improvements by `note`."""
    keep(rows, seconds, row, new)
    note(trace, evaluations, new)


@compiled
def fill_gains(rows, seconds, source, action, target, ints, floats, options, gains):  # noqa: ANN001, ANN201
    """Compute the log benefits `gains` [E] of all edges source -> target between the states `rows` [S, ROW].

    No steps at the memory level are assumed (`at_level` 0).
    """
    for e in range(source.shape[0]):
        a, b = source[e], target[e]
        gains[e] = log_benefit(action[e], seconds[a], seconds[b], rows[a], rows[b], 0, ints, floats, options)


@compiled
def walk(row, seed, ints, floats, sizes, options, space, rows, seconds, trace):  # noqa: ANN001, ANN201
    """Run one annealed walk from program `row`, in place; fill the best `rows` with their `seconds`, and the `trace`.

    `space` is scratch memory of the model. Return (number of states visited, number of model evaluations).
    """
    state = seeded(seed)
    scratch, result = np.empty(ROW, dtype=np.int32), np.empty(ROW, dtype=np.int32)
    terms, mask = np.empty(NUM_TERMS), np.empty(NUM_ACTIONS, dtype=np.int8)
    gains, after, legal = np.empty(NUM_ACTIONS), np.empty(NUM_ACTIONS), np.empty(NUM_ACTIONS, dtype=np.int64)
    steps = int(options[STEPS])
    cooling = (options[FINISH] / options[START]) ** (1.0 / max(1, steps - 1))
    temperature, at_level, evaluations, visited = options[START], 0, 1, 1
    now = latency(row, ints, floats, terms, scratch, space)
    remember(rows, seconds, trace, row, now, evaluations)
    for _ in range(steps):
        fill_mask(row, ints, sizes, scratch, mask)
        count = 0
        for action in range(1, NUM_ACTIONS):
            if mask[action] == 0:
                continue
            result[:] = row
            apply(result, action, ints, sizes)
            if action == CACHE or action == UNCACHE:  # these two do not change the program
                after[action] = now
            else:
                after[action] = latency(result, ints, floats, terms, scratch, space)
                evaluations += 1
            gains[count] = log_benefit(action, now, after[action], row, result, at_level, ints, floats, options)
            legal[count] = action
            remember(rows, seconds, trace, result, after[action], evaluations)
            count += 1
        if count == 0:
            break
        action = choose(gains, legal, count, temperature, state)
        at_level = 0 if action == CACHE or action == UNCACHE else at_level + 1
        apply(row, action, ints, sizes)
        now = after[action]
        visited += 1
        temperature *= cooling
    return visited, evaluations


@compiled
def walks(starts, seeds, ints, floats, sizes, options, space, rows, seconds, trace):  # noqa: ANN001, ANN201
    """Run one annealed walk from every start [W, ROW]; fill the best rows [W, R, ROW] and seconds [W, R] of each.

    Return (number of states visited, number of model evaluations).
    """
    visited, evaluations = 0, 0
    for w in range(seeds.shape[0]):
        seconds[w] = np.inf
        v, e = walk(starts[w].copy(), seeds[w], ints, floats, sizes, options, space, rows[w], seconds[w], trace)
        visited += v
        evaluations += e
        if trace.shape[0] > 0:
            trace[0, 1] = evaluations
    return visited, evaluations


@compiled
def descend(row, ints, floats, sizes, limit, space, trace):  # noqa: ANN001, ANN201
    """Apply the best legal move by the model to program `row`, in place, until no move gains or after `limit` moves.

    Return (seconds of the last program, number of model evaluations).
    """
    scratch, result = np.empty(ROW, dtype=np.int32), np.empty(ROW, dtype=np.int32)
    terms, mask = np.empty(NUM_TERMS), np.empty(NUM_ACTIONS, dtype=np.int8)
    best, evaluations = latency(row, ints, floats, terms, scratch, space), 1
    note(trace, evaluations, best)
    for _ in range(limit):
        fill_mask(row, ints, sizes, scratch, mask)
        chosen = 0
        for action in range(1, NUM_ACTIONS):
            if mask[action] == 0 or action == CACHE or action == UNCACHE:
                continue
            result[:] = row
            apply(result, action, ints, sizes)
            after = latency(result, ints, floats, terms, scratch, space)
            evaluations += 1
            note(trace, evaluations, after)
            if after < best:
                best, chosen = after, action
        if chosen == 0:
            break
        apply(row, chosen, ints, sizes)
    return best, evaluations


@compiled
def descents(rows, ints, floats, sizes, limit, space, seconds, trace):  # noqa: ANN001, ANN201
    """Descend by the model from every program of `rows` [W, ROW] in place, and fill the ends' seconds [W].

    Return the total number of model evaluations.
    """
    evaluations = 0
    for w in range(rows.shape[0]):
        seconds[w], more = descend(rows[w], ints, floats, sizes, limit, space, trace)
        evaluations += more
        if trace.shape[0] > 0:
            trace[0, 1] = evaluations
    return evaluations
