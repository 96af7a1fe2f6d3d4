"""Inputs of the compared cost models: features of programs, or schedules as sequences of primitives.

The features are those of `agents.hybrids.program_features`. The sequences follow TLP (arXiv 2211.03578), which reads the schedule
primitives and their numbers, not the generated code. The tokens are our reconstruction for the construction graph: one for the
splits of each axis, one for each knob.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.training.learn_correction import Observed
from gensor_gym import operators
from gensor_gym.env.observation import static_features
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, TILE, slot_of
from gensor_gym.hardware.types import Hardware

LEVELS = 3
"""Number of tile levels of a CPU."""
TOKENS, WIDTH = MAX_AXES + len(KNOBS), LEVELS + 2
_DEFAULTS = np.array([knob.values.index(knob.default) for knob in KNOBS])


@dataclass(frozen=True)
class Sequences:
    """Programs as sequences of tokens for schedule primitives, together with features of their operators.

    There are B programs, each with `TOKENS` tokens of `WIDTH` numbers.
    """

    operator: np.ndarray
    """Operator features float32 [B, S]: log extents, accesses and body; whether weights are frozen; length of the epilogue."""
    tokens: np.ndarray
    """Tokens float32 [B, TOKENS, WIDTH]: log2 of an axis's sizes by level and of its extent, or the index of a knob's value."""
    present: np.ndarray
    """Mask bool [B, TOKENS] of the tokens that count: axes longer than 1, and knobs that are not at their default."""

    def flat(self) -> np.ndarray:
        """Return all numbers as one row for each program, float32 [B, S + TOKENS * WIDTH]."""
        return np.concatenate([self.operator, self.tokens.reshape(len(self.tokens), -1)], axis=1)

    def packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (operator, tokens, present), in which the tokens that count (`present`) come first for each program.

        `tokens` [B, T, WIDTH + TOKENS] have their kind as one-hot after their numbers; `present` is bool [B, T]. T is the
        largest number of tokens that count.
        """
        first = np.argsort(~self.present, axis=1, kind="stable")[:, : self.present.sum(axis=1).max()]
        kinds = np.eye(TOKENS, dtype=np.float32)[first]
        numbers = np.take_along_axis(self.tokens, first[..., None], axis=1) / 8
        return self.operator, np.concatenate([numbers, kinds], axis=2), np.take_along_axis(self.present, first, axis=1)


def sequences_of(observed: Observed) -> Sequences:
    """Return the sequences of all recorded programs, in the same order."""
    each = [_operator(text, observed.hardware) for text in observed.operators]
    own, extents = (np.stack(values)[observed.groups] for values in zip(*each, strict=True))
    rows = observed.programs
    tokens = np.zeros((len(rows), TOKENS, WIDTH), dtype=np.float32)
    sizes = rows[:, TILE : TILE + LEVELS * MAX_AXES].reshape(-1, LEVELS, MAX_AXES)
    tokens[:, :MAX_AXES, :LEVELS] = np.log2(sizes.transpose(0, 2, 1))
    tokens[:, :MAX_AXES, LEVELS] = np.log2(extents)
    knobs = rows[:, KNOB : KNOB + len(KNOBS)]
    tokens[:, MAX_AXES:, LEVELS + 1] = knobs
    return Sequences(own, tokens, np.concatenate([extents > 1, knobs != _DEFAULTS], axis=1))


def _operator(text: str, hw: Hardware) -> tuple[np.ndarray, np.ndarray]:
    """Return (features float32 [S], axis extents by slot [MAX_AXES]) of an operator."""
    op, extents = operators.parse(text), np.ones(MAX_AXES)
    for axis, extent in enumerate(op.extents):
        extents[slot_of(axis, len(op.spatial))] = extent
    return np.append(static_features(op, hw), [op.frozen, len(op.epilogue)]).astype(np.float32), extents
