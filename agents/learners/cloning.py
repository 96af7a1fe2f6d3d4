"""Behaviour cloning: a policy learns paths to known programs before it learns by itself (Pomerleau 1991).

The teacher names a program: the certified optimum of a task (`gensor_gym.exact`) or the best program that Gensor's traverser
finds. A shortest path leads to that program (`gensor_gym.exact.paths`). Actions between two changes of the level are shuffled if
that is legal, but actions along one axis keep their order. In every state the next actions of all axes are equally good, so the
policy learns them with equal weights. The critic learns the path's return. Shuffling and weights are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agents.gensor.markov import Markov, MarkovExtended
from agents.learners.guide import Placed
from agents.learners.registry import Learner
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.tasks import TaskSet
from gensor_gym.exact.paths import actions_to
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.graph.actions import ACTIONS, CACHE, NUM_ACTIONS, STOP, UNCACHE
from gensor_gym.graph.schedule import Schedule

MOST_STATES = 3000
"""Maximum number of states that the search for a path may visit. A task whose path is not found by then is left out."""


@dataclass(frozen=True)
class Examples:
    """Training examples for behaviour cloning: observed states with the teacher's actions and returns."""

    observations: np.ndarray
    """Observations of the states, float32 [E, O]."""
    masks: np.ndarray
    """Legal actions, bool [E, N]."""
    targets: np.ndarray
    """Probabilities of the teacher's actions, float32 [E, N]."""
    returns: np.ndarray
    """Return of the teacher's episode from each state, float32 [E]."""


def optimum(graph: ConstructionGraph, rng: np.random.Generator) -> Schedule | None:
    """Return the certified optimum of a task; None without a certificate of the current fingerprint."""
    found = certificate_of(graph)
    return found.best if found is not None else None


def markov(graph: ConstructionGraph, rng: np.random.Generator) -> Schedule | None:
    """Return the best program of a single run of Gensor's traverser."""
    traverser = MarkovExtended() if graph.space == "extended" else Markov(space=graph.space)
    return traverser.construct(graph, rng).schedules[0]


TEACHERS: Mapping[str, Callable[[ConstructionGraph, np.random.Generator], Schedule | None]] = {
    "optimum": optimum, "markov": markov,
}  # fmt: skip
"""Name of a teacher -> function that returns its program for a task, or None."""


def examples(
    learner: Learner, tasks: TaskSet, teacher: str, ways: int, step_cost: float, rng: np.random.Generator
) -> Examples:
    """Make training examples from `ways` shuffled paths to the teacher's program of every task.

    ValueError if the teacher is unknown, or has no program for any task.
    """
    if teacher not in TEACHERS:
        raise ValueError(f"no teacher {teacher!r}: expected one of {sorted(TEACHERS)}")
    parts = []
    for graph in tasks.graphs:
        goal = TEACHERS[teacher](graph, rng)
        if goal is not None and (way := way_to(graph, goal)) is not None:
            parts.append(of_task(learner, graph, way, ways, step_cost, rng))
    if not parts:
        raise ValueError(f"teacher {teacher!r} knows none of the {len(tasks.graphs)} tasks; see python -m experiments certify")
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in Examples.__dataclass_fields__)
    return Examples(*joined)


def way_to(graph: ConstructionGraph, goal: Schedule) -> list[int] | None:
    """Return the actions of a shortest path from the unscheduled program to the program `goal`.

    None if the path is longer than an episode, or not found within 3,000 (`MOST_STATES`) states because of the hardware's limits.
    """
    try:
        way = actions_to(graph, goal, MOST_STATES)
    except ValueError:
        return None
    return way if len(way) < graph.horizon else None


def of_task(
    learner: Learner, graph: ConstructionGraph, way: list[int], ways: int, step_cost: float, rng: np.random.Generator
) -> Examples:
    """Make the training examples of one task: `ways` shuffled orders of the path `way`, including the `stop` at its end.

    `step_cost` is subtracted from the return for every step.
    """
    rows, steps, targets = [], [], []
    for _ in range(ways):
        row = graph.initial().row
        queues = segments(way)
        for taken in range(len(way) + 1):
            ready = next_actions(graph, row, queues)
            rows.append(row)
            steps.append(graph.horizon - taken)
            targets.append(np.bincount(ready, minlength=NUM_ACTIONS) / len(ready))
            if ready == [STOP]:
                break
            action = int(rng.choice(ready))
            queues[0] = [q[1:] if q[0] == action else q for q in queues[0]]
            queues[0] = [q for q in queues[0] if q]
            row = graph.transitions(row[None], np.array([action]))[0][0]
    placed = Placed(TaskSet(graph.operator, graph.hardware, graph.space), np.array(rows), np.array(steps))
    observer = learner.observer(placed)
    observed = observer.observe(placed.flat, np.zeros(len(rows), dtype=np.bool_))
    left = np.array(steps) - (graph.horizon - len(way))
    returns = np.log(placed.seconds / graph.latencies(rows[-1][None])[0]) - step_cost * left
    return Examples(observed, placed.action_masks(), np.array(targets, np.float32), returns.astype(np.float32))


def segments(way: list[int]) -> list[list[list[int]]]:
    """Cut a path at the actions that change the memory level. Each segment is a list of queues of actions.

    A queue has the actions of one axis or knob in their order. An action that changes the level is a segment of its own, with one
    queue.
    """
    pieces: list[dict[object, list[int]]] = [{}]
    for action in way:
        if action in (CACHE, UNCACHE):
            pieces += [{None: [action]}, {}]
        else:
            target = ACTIONS[action].axis if ACTIONS[action].axis is not None else ACTIONS[action].knob
            pieces[-1].setdefault(target, []).append(action)
    return [list(piece.values()) for piece in pieces]


def next_actions(graph: ConstructionGraph, row: np.ndarray, queues: list[list[list[int]]]) -> list[int]:
    """Return the legal next actions of a path's remaining `queues` (see `segments`).

    The result is [STOP] at the path's end, or if shuffling made all next actions illegal.
    """
    while queues and not queues[0]:
        queues.pop(0)
    if not queues:
        return [STOP]
    mask = graph.action_masks(row[None])[0]
    return [queue[0] for queue in queues[0] if mask[queue[0]]] or [STOP]


def imitate(model: Any, shown: Examples, epochs: int, batch_size: int, learning_rate: float, seed: int) -> list[float]:
    """Fit actor and critic of a masked model to the examples; return the mean loss of every epoch.

    The loss is the cross-entropy of the actions plus half the squared error of the values.
    """
    policy, generator = model.policy, np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    policy.set_training_mode(True)
    tensors = [torch.as_tensor(getattr(shown, name)) for name in Examples.__dataclass_fields__]
    losses = []
    for _ in range(epochs):
        total = 0.0
        order = generator.permutation(len(shown.returns))
        for at in range(0, len(order), batch_size):
            chosen = torch.as_tensor(order[at : at + batch_size])
            observations, masks, targets, returns = (tensor[chosen] for tensor in tensors)
            chances = policy.get_distribution(observations, action_masks=masks).distribution.logits
            missed = policy.predict_values(observations)[:, 0] - returns
            loss = -(targets * chances).sum(1).mean() + 0.5 * (missed**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(chosen)
        losses.append(total / len(order))
    policy.set_training_mode(False)
    return losses
