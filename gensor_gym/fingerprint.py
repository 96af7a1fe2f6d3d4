"""The fingerprint of a task: results compare only where it is the same.

It is a hash of behaviour. It changes when the task's space, its rules or what the model says of it change, and not for a
comment, another machine, a new operator or a faster way to compute the same. Each task is asked what it does:

- which sizes and which values of knobs there are, where construction starts, the horizon, the roofline floor;
- which actions are legal along walks that are always the same, from the unscheduled program and one of every kind;
- how long programs take, with every term of the model: all of them in a small space, else those that coordinate descents
  try on their way, thousands around the fastest.

Integers count exactly, seconds to six digits (a part in 2^20): other processors, compilers and orders of summation differ
in the last bits. Descents pass over gains that small, since a tie broken the other way would lead elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import SEEN, ColumnChoices, descend, usable_values
from gensor_gym.cost.model import fill_terms
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.graph.actions import ACTIONS, KNOB_UP
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import LEVEL, MAX_AXES, ROW
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables import ALLOWED, NUM_LEVELS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

DIGITS = 16
"""Hexadecimal digits of a fingerprint."""
LISTED = 4096
"""Candidates up to which all programs of a space are evaluated."""
WALKS, STEPS = 12, 64
"""Walks from each start, and their steps."""
EVALUATED = 6144
"""Programs that descents from a start, and from where its walks end, evaluate."""
GAIN = 1.0 - 1e-6
"""A descent takes a program that is faster by more than six digits show."""

_known: dict[bytes, str] = {}


def fingerprint(graph: ConstructionGraph) -> str:
    """Sixteen hexadecimal digits of the task's behaviour. Found once a process for each task; nothing is charged."""
    tables = graph.tables
    parts = (tables.ints, tables.floats, tables.sizes, graph.initial().row)
    key = b"".join(part.tobytes() for part in parts)
    if key not in _known:
        _known[key] = _digest(graph)
    return _known[key]


def fingerprints(ops: Iterable[Operator], hardware: Hardware | str, space: str) -> dict[str, str]:
    """The fingerprint of every operator's task, by the operator's text."""
    return {str(op): _task_fingerprint(op, machines.get(hardware), space) for op in ops}


def common(found: Iterable[str]) -> str:
    """One fingerprint for several tasks, in whatever order: of a single one its own."""
    different = sorted(set(found))
    return different[0] if len(different) == 1 else hashlib.sha256(" ".join(different).encode()).hexdigest()[:DIGITS]


@lru_cache(maxsize=4096)
def _task_fingerprint(op: Operator, hardware: Hardware, space: str) -> str:
    """The fingerprint of a task whose graph nobody has made yet."""
    return fingerprint(ConstructionGraph(op, hardware, space))


def _digest(graph: ConstructionGraph) -> str:
    """Hash of all that the task is asked."""
    whole = hashlib.sha256(json.dumps(_facts(graph)).encode())
    begins = starts(graph.tables, graph.initial().row)
    ways = _walked(graph, begins)
    masks = graph.action_masks(ways.reshape(-1, ROW))
    legal = np.flatnonzero(masks.any(axis=0))
    whole.update(json.dumps([str(ACTIONS[action]) for action in legal]).encode())
    whole.update(np.packbits(masks[:, legal]).tobytes())
    ends = ways[:, :, -1]
    whole.update("\n".join(str(Schedule(row)) for row in ends.reshape(-1, ROW)).encode())
    for programs in _evaluated(graph, np.concatenate([begins[:, None], ends], axis=1)):
        whole.update(_six_digits(programs).tobytes())
    return whole.hexdigest()[:DIGITS]


def _facts(graph: ConstructionGraph) -> list[object]:
    """What the task's tables say of its space and its scale."""
    tables = graph.tables
    knobs = {
        knob.name: [knob.values[i] for i in values]
        for k, knob in enumerate(KNOBS)
        if len(values := usable_values(tables, k)) > 1
    }
    seconds = [f"{value:.6g}" for value in (graph.floor, CAP_OVER_FLOOR * graph.floor)]
    ladders = [tables.ladder(slot) for slot in range(MAX_AXES)]
    return [ladders, sorted(knobs.items()), str(graph.initial()), graph.horizon, seconds]


def _walked(graph: ConstructionGraph, begins: np.ndarray) -> np.ndarray:
    """Rows int32 [S, WALKS, 1 + STEPS, ROW] of walks. Draws are raw bits of PCG64, the same in every NumPy."""
    bits = np.random.PCG64(0).random_raw(len(begins) * WALKS * STEPS)
    draws = ((bits >> np.uint64(11)) * 2.0**-53).reshape(len(begins), WALKS, STEPS)
    return np.array([[graph.walk(begin, walk) for walk in walks] for begin, walks in zip(begins, draws, strict=True)])


def _evaluated(graph: ConstructionGraph, begins: np.ndarray) -> Iterator[np.ndarray]:
    """Seconds and terms of programs, some thousand at a time; descents begin at `begins` [S, N, ROW], N of each kind."""
    tables = graph.tables
    if count_schedules(tables.ints, tables.sizes) <= LISTED:
        for rows in graph.enumerate():
            found = np.zeros((len(rows), SEEN - 1))
            fill_terms(rows, tables.ints, tables.floats, found)
            yield found
        return
    moving = [k for k in range(len(KNOBS)) if tables.ints[ALLOWED + KNOB_UP + k]]
    choices = ColumnChoices.of(tables, moving)
    for kind in begins:
        seen, at = np.empty((EVALUATED, SEEN)), 0
        for row in kind:
            row[LEVEL] = tables.ints[NUM_LEVELS] - 1
            at += descend(row, choices, tables, GAIN, seen[at:])[1]
            if at == EVALUATED:
                break
        yield seen[:at]


def _six_digits(values: np.ndarray) -> np.ndarray:
    """Numbers as pairs of int32, twenty bits of the mantissa and the exponent; those that are not finite as (2^30, 0)."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    bits = np.where(finite, np.rint(mantissa * 2.0**20), 2.0**30)
    return np.stack([bits, exponent]).astype("<i4")
