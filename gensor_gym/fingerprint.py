"""Fingerprint of a task. Results are comparable only if their fingerprints are equal.

The fingerprint is a hash of behaviour. It changes with the task's space, its rules or its model. It does not change with a
comment, a new operator, a faster implementation or the machine that computes it. It covers:

- the tile sizes, the knobs' values, the initial program, the horizon and the roofline floor;
- the legal actions along fixed walks from the unscheduled program and from one program of each further kind (such as each kind of
  tensor core), and the legality of thousands of programs drawn near the limits;
- the latency and every term of the model for the drawn programs and for further programs: in a small space all programs, in a
  larger space the programs that coordinate descents evaluate, starting at the fastest drawn programs.

Integers count exactly, seconds to six digits (2^-20), because processors, compilers and orders of summation differ in the last
bits. Descents ignore gains below six digits, because rounding could otherwise decide between two programs. A fingerprint is not a
proof: a change that affects none of these programs does not show.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import TRACED, descend
from gensor_gym.cost.model import fill_terms
from gensor_gym.cost.roofline import CAP_OVER_FLOOR
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.actions import ACTIONS
from gensor_gym.graph.coordinates import moved_knobs, opened, usable_values
from gensor_gym.graph.enumeration import count_schedules
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.near_limits import DRAWS, near_limits
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.graph.tables.layout import MAX_AXES, ROW
from gensor_gym.hardware.cpu import CASCADE_LAKE
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

HOST = "host"
"""Name of the machine that runs Python. Its rates are measured and not taken from a data sheet."""
DIGITS = 16
"""Number of hexadecimal digits of a fingerprint."""
LISTED = 4096
"""Largest number of candidate programs of a space that counts as small, so that all of its programs are evaluated."""
WALKS, STEPS = 12, 64
"""Number of walks from each start (the unscheduled program and one of each further kind), and number of steps of a walk."""
DRAWN = 4096
"""Number of programs drawn near the hardware's limits for each start."""
DESCENTS, EVALUATED = 4, 1536
"""Number of coordinate descents for each start, and the largest number of programs that a descent evaluates."""
GAIN = 1.0 - 1e-6
"""A coordinate descent moves to a program only if its seconds are below GAIN times the best seconds so far."""
COLUMNS = (64, 128, 256)
"""Numbers of columns of the wgmma (Hopper's tensor core) programs among the starts. Searches have their own copies of COLUMNS and
CHANCES, which may be tuned without changing fingerprints.
"""
CHANCES = np.array([1.0 if a.primitive.startswith("inverse") else 0.5 if a.primitive == "cache" else 2.0 for a in ACTIONS])
"""Relative frequency of each action in a walk, float64 [N]."""

_known: dict[bytes, str] = {}


def fingerprint(graph: ConstructionGraph) -> str:
    """Return the fingerprint of the graph's task, sixteen hexadecimal digits, cached for the process. No budget is charged.

    The host's fingerprint covers its limits but not its measured rates, which vary a little.
    """
    if graph.hardware.name == HOST:
        graph = ConstructionGraph(graph.operator, _with_fixed_rates(graph.hardware), graph.space)
    tables = graph.tables
    parts = (tables.ints, tables.floats, tables.sizes, graph.initial().row)
    key = b"".join(part.tobytes() for part in parts)
    if key not in _known:
        _known[key] = _digest(graph)
    return _known[key]


def fingerprints(ops: Iterable[Operator], hardware: Hardware | str, space: str) -> dict[str, str]:
    """Return the fingerprint of each operator's task on the hardware in the space, by the operator's text."""
    return {str(op): _task_fingerprint(op, machines.get(hardware), space) for op in ops}


def common(found: Iterable[str]) -> str:
    """Combine the fingerprints of several tasks into one, in any order. If all are equal, return that fingerprint."""
    different = sorted(set(found))
    return different[0] if len(different) == 1 else hashlib.sha256(" ".join(different).encode()).hexdigest()[:DIGITS]


@lru_cache(maxsize=4096)
def _task_fingerprint(op: Operator, hardware: Hardware, space: str) -> str:
    return fingerprint(ConstructionGraph(op, hardware, space))


def _with_fixed_rates(host: Hardware) -> Hardware:
    rates: dict[str, dict[str, Any]] = {
        level.name: {"bandwidth": level.bandwidth, "latency": level.latency} for level in CASCADE_LAKE.memory
    }
    memory = tuple(replace(level, **rates.get(level.name, {})) for level in host.memory)
    fixed = {name: getattr(CASCADE_LAKE, name) for name in ("clock", "peak", "launch_overhead")}
    return replace(host, name=f"{HOST} with fixed rates", memory=memory, **fixed)


def _digest(graph: ConstructionGraph) -> str:
    """Hash the parts that the module's docstring lists. Return the fingerprint."""
    whole = hashlib.sha256(json.dumps(_facts(graph)).encode())
    tables = graph.tables
    begins = starts(tables, graph.initial().row, COLUMNS)
    for part in _walked(graph, begins):
        whole.update(part)
    small = count_schedules(tables.ints, tables.sizes) <= LISTED
    for begin, draws in zip(begins, _numbers((len(begins), DRAWN, DRAWS)), strict=True):
        rows = near_limits(begin, draws, tables.ints, tables.sizes)
        legal = graph.fits(rows)
        whole.update(np.packbits(legal).tobytes())
        programs = _evaluated(graph, rows[legal])
        whole.update(_six_digits(programs).tobytes())
        if not small:
            whole.update(_six_digits(_descended(graph, rows[legal], programs[:, 0])).tobytes())
    for rows in graph.enumerate() if small else ():
        whole.update(_six_digits(_evaluated(graph, rows)).tobytes())
    return whole.hexdigest()[:DIGITS]


def _facts(graph: ConstructionGraph) -> list[object]:
    """Return facts of the task: tile sizes, variable knobs with values, initial program, horizon, roofline floor, T_cap."""
    tables = graph.tables
    knobs = {
        KNOBS[k].name: [KNOBS[k].values[i] for i in values]
        for k in moved_knobs(tables.ints)
        if len(values := usable_values(tables.ints, k)) > 1
    }
    seconds = [f"{value:.6g}" for value in (graph.floor, CAP_OVER_FLOOR * graph.floor)]
    ladders = [tables.ladder(slot) for slot in range(MAX_AXES)]
    return [ladders, sorted(knobs.items()), str(graph.initial()), graph.horizon, seconds]


def _walked(graph: ConstructionGraph, begins: np.ndarray) -> Iterator[bytes]:
    """Walk from each of `begins` with fixed random numbers. Yield three byte strings to hash.

    They are the names of the actions that are legal at any step, the masks of these actions at every step, and the text of the
    last program of each walk.
    """
    draws = _numbers((len(begins), WALKS, STEPS))
    ways = np.array(
        [[graph.walk(begin, walk, CHANCES) for walk in walks] for begin, walks in zip(begins, draws, strict=True)]
    )
    masks = graph.action_masks(ways.reshape(-1, ROW))
    legal = np.flatnonzero(masks.any(axis=0))
    yield json.dumps([str(ACTIONS[action]) for action in legal]).encode()
    yield np.packbits(masks[:, legal]).tobytes()
    yield "\n".join(str(Schedule(row)) for row in ways[:, :, -1].reshape(-1, ROW)).encode()


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Return fixed float64 numbers in [0, 1): raw bits of PCG64, which no release of NumPy changes."""
    bits = np.random.PCG64(0).random_raw(math.prod(shape))
    return ((bits >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _evaluated(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Return the predicted seconds, then the model's terms, of legal programs [B, ROW]: float64 [B, 1 + terms]."""
    found = np.zeros((len(rows), 1 + NUM_TERMS))
    fill_terms(rows, graph.tables.ints, graph.tables.floats, graph.room(), found)
    return found


def _descended(graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Run a coordinate descent from each of the four (`DESCENTS`) fastest of the programs `rows` [B, ROW]. Return their traces.

    The traces are float64 [N, TRACED], one row for each program that a descent evaluates. `seconds` are rounded to six digits
    before they are ranked; the first of equal programs comes first.
    """
    parts = [np.empty((0, TRACED))]
    for row in rows[np.argsort(_rounded(seconds), kind="stable")[:DESCENTS]]:
        trace = np.empty((EVALUATED, TRACED))
        found = descend(opened(row, graph.tables.ints), graph.coordinates, graph.tables, gain=GAIN, trace=trace)
        parts.append(trace[: found.evaluated])
    return np.concatenate(parts)


def _rounded(seconds: np.ndarray) -> np.ndarray:
    """Round seconds to a mantissa of twenty bits, which is six decimal digits."""
    mantissa, exponent = np.frexp(seconds)
    return np.ldexp(np.rint(mantissa * 2.0**20), exponent)


def _six_digits(values: np.ndarray) -> np.ndarray:
    """Encode numbers as int32 [2, ..]: twenty bits of the mantissa, then the exponent. Infinities and NaN become (2^30, 0)."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    bits = np.where(finite, np.rint(mantissa * 2.0**20), 2.0**30)
    return np.stack([bits, exponent]).astype("<i4")
