"""Representations of programs that AutoTVM's paper compares: loops in context, relation curves, and knobs."""

from __future__ import annotations

import numpy as np

from agents.autotvm.loop_features import (
    COUNT,
    KNOBS_AT,
    LENGTH,
    LOOP_FIELDS,
    REUSE,
    TOPDOWN,
    TOUCH_FIELDS,
    loop_blocks,
    loop_features,
)
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.tables.layout import LEVEL, MAX_TENSORS, ROW

FEATURES = ("loops", "curve", "knobs")
SAMPLES = 20
"""Number of thresholds at which a relation curve is sampled: 2^0 to 2^19, as in the authors' tuner."""
_RELATIONS = ((COUNT, REUSE), (REUSE, COUNT), (COUNT, -1), (-1, COUNT))
"""Fields (x, y) of the four relation curves of y over x; -1 is the product of lengths from the outermost loop."""


def program_features(kind: str, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """Compute features float32 [B, F] of encoded programs `rows` int32 [B, ROW], in the representation `kind`.

    ValueError if `kind` is not one of `FEATURES`.
    """
    if kind == "loops":
        return loop_features(graph, rows)
    if kind == "curve":
        return curve_features(loop_features(graph, rows))
    if kind == "knobs":
        kept = [place for place in range(ROW) if place != LEVEL]
        return np.log2(rows[:, kept] + 1.0).astype(np.float32)
    raise ValueError(f"features {kind!r}: expected one of {FEATURES}")


def curve_features(features: np.ndarray) -> np.ndarray:
    """Compute AutoTVM's relation curves from loop features [B, F]; return float32 [B, F'].

    A curve relates two of: touched elements, reuse, and position of the loops. It does not depend on the order of a nest. For
    every tensor and each of four pairs of fields (x, y), x and y of all loops longer than 1 are listed with a 0 in front, and
    sorted separately. For thresholds i = 0 .. 19 the columns are the y at the last x <= i, and i - x (Chen et al., section 3.1;
    the authors' extractor also sorts separately). The columns of knobs and task follow.
    """
    blocks = loop_blocks(features)
    touches = blocks[:, :, len(LOOP_FIELDS) :].reshape(*blocks.shape[:2], MAX_TENSORS, len(TOUCH_FIELDS))
    turns = blocks[:, :, LENGTH] > 1.0  # log2(1 + length)
    position = np.where(turns, blocks[:, :, TOPDOWN], 0.0)
    parts = []
    for tensor in range(MAX_TENSORS):
        lists = {field: np.where(turns, touches[:, :, tensor, field], 0.0) for field in (COUNT, REUSE)} | {-1: position}
        ordered = {field: np.sort(np.pad(values, ((0, 0), (1, 0))), axis=1) for field, values in lists.items()}
        parts += [_curve(ordered[x], ordered[y]) for x, y in _RELATIONS]
    return np.concatenate([*parts, features[:, KNOBS_AT:]], axis=1).astype(np.float32)


def _curve(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sample a relation curve at every threshold i: the y at the last x <= i, and i - x; return [B, 2 * SAMPLES].

    The lists x and y [B, LOOPS + 1] are sorted.
    """
    thresholds = np.arange(SAMPLES, dtype=np.float64)
    at = (x[:, None, :] <= thresholds[:, None]).sum(axis=2) - 1
    return np.concatenate([np.take_along_axis(y, at, axis=1), thresholds - np.take_along_axis(x, at, axis=1)], axis=1)
