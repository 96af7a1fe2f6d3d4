"""Features of `Write-v0`: the program so far, the current decision, and the options that may lead to a legal program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.graph_view import box
from gensor_gym.env.observation import GROUPS as OF_CONSTRUCTION
from gensor_gym.env.settings import Settings, kept_slices
from gensor_gym.env.writing.decisions import MOST_SIZES, NUM_SUBJECTS
from gensor_gym.graph.schedule import Schedule

KINDS = ("flat", "dict")
GROUPS: dict[str, int] = {
    **{name: OF_CONSTRUCTION[name] for name in ("tiles", "knobs", "level", "resources")},  # as Construct-v0 shows them
    "decision": NUM_SUBJECTS,  # one hot: axis, level of a tile or virtual threads, knob
    "remaining": 2,  # decisions left: fraction of all, log2
    "choices": MOST_SIZES,  # for each option log2 of its size, or its index as a fraction; 0 if it is missing or masked
    **{name: OF_CONSTRUCTION[name] for name in ("operator", "hardware")},
}
"""Number of features of every group, in the order of the flat observation."""
_ENDS = dict(zip(GROUPS, np.cumsum(list(GROUPS.values())).tolist(), strict=True))
SLICES = {name: slice(end - GROUPS[name], end) for name, end in _ENDS.items()}
NUM_FEATURES = sum(GROUPS.values())
SUBJECT_AT, REMAINING_AT, CHOICES_AT = (SLICES[name].start for name in ("decision", "remaining", "choices"))
NUM_DYNAMIC: int = SLICES["operator"].start


class WriteView:
    """Turns the features of one environment, or of a batch, into the observation that the settings choose."""

    def __init__(self, settings: Settings) -> None:
        """Take the kind of observation and the groups from the settings. ValueError names an unknown observation or group."""
        if settings.observation not in KINDS:
            raise ValueError(f"no observation {settings.observation!r} of Write-v0; it is one of {KINDS}")
        self.kind = settings.observation
        self.slices = kept_slices(settings.groups, SLICES)
        self.keep = np.concatenate([np.arange(s.start, s.stop) for s in self.slices.values()])
        self.space: gymnasium.Space = box(len(self.keep))
        if self.kind == "dict":
            self.space = gymnasium.spaces.Dict({name: box(s.stop - s.start) for name, s in self.slices.items()})

    def single(self, features: np.ndarray, _graph: ConstructionGraph, _row: np.ndarray, _mask: np.ndarray) -> Any:
        """Return the observation of one environment from its features float32 [F]."""
        return self.batch(features.copy())

    def batch(self, features: np.ndarray) -> Any:
        """Return the flat observation, or a dictionary of its groups, from features [..., F]."""
        if self.kind == "dict":
            return {name: features[..., s].copy() for name, s in self.slices.items()}
        return features[..., self.keep]

    def drawn(self, mode: str) -> Callable[[ConstructionGraph, Schedule], Any]:
        """Return the function that draws a schedule in a render mode."""
        from gensor_gym.env.pictures import render

        return render.as_text if mode == "ansi" else render.as_image
