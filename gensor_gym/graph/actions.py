"""All actions: every primitive with its axis or knob, in a fixed order for all operators and machines.

A space has a subset of the actions.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.tables.layout import MAX_AXES
from gensor_gym.registry import near


@dataclass(frozen=True)
class Action:
    """An action of the construction graph: a primitive, with the slot of the axis (`axis`) or the knob (`knob`) that it changes.

    A primitive such as `stop` changes neither, and both are None.
    """

    primitive: str
    axis: int | None = None
    knob: str | None = None

    def __str__(self) -> str:
        """Return the text of the action, such as `tile[4]`, `raise[split_k]` or `stop`."""
        target = self.axis if self.axis is not None else self.knob
        return self.primitive if target is None else f"{self.primitive}[{target}]"


STOP = 0
TILE_UP = 1
TILE_DOWN = TILE_UP + MAX_AXES
CACHE = TILE_DOWN + MAX_AXES
UNCACHE = CACHE + 1
VTHREAD_UP = UNCACHE + 1
VTHREAD_DOWN = VTHREAD_UP + MAX_AXES
KNOB_UP = VTHREAD_DOWN + MAX_AXES
KNOB_DOWN = KNOB_UP + len(KNOBS)
NUM_ACTIONS = KNOB_DOWN + len(KNOBS)

ACTIONS: tuple[Action, ...] = (
    Action("stop"),
    *(Action("tile", axis=a) for a in range(MAX_AXES)),
    *(Action("inverse_tile", axis=a) for a in range(MAX_AXES)),
    Action("cache"),
    Action("inverse_cache"),
    *(Action("set_vthread", axis=a) for a in range(MAX_AXES)),
    *(Action("inverse_vthread", axis=a) for a in range(MAX_AXES)),
    *(Action("raise", knob=knob.name) for knob in KNOBS),
    *(Action("lower", knob=knob.name) for knob in KNOBS),
)

_GROWING = {"stop", "tile", "cache"}
_GENSOR = _GROWING | {"inverse_tile", "inverse_cache", "set_vthread", "inverse_vthread"}

SPACES: dict[str, frozenset[str]] = {
    "gensor": frozenset(_GENSOR),
    "tree": frozenset(_GROWING | {"set_vthread"}),
    "gensor_no_vthread": frozenset(_GENSOR - {"set_vthread", "inverse_vthread"}),
    "extended": frozenset(_GENSOR | {"raise", "lower"}),
    "medium": frozenset(_GENSOR - {"set_vthread", "inverse_vthread"} | {"raise", "lower"}),
    "compact": frozenset(_GENSOR - {"set_vthread", "inverse_vthread"}),
}
"""Primitives of every named space. `compact` and `medium` also have fewer tile sizes (`graph/ladder.py`)."""

OPERAND_KNOBS = frozenset(knob.name for knob in KNOBS if knob.of_operands)
"""Knobs that the space `medium` changes: copies, layout and traversal of operands."""


def space_actions(space: str) -> tuple[bool, ...]:
    """Return for every action whether a space contains it. ValueError for an unknown space names the known ones."""
    if space not in SPACES:
        raise ValueError(f"no space {space!r}; spaces are {sorted(SPACES)}{near(space, SPACES)}")
    moved = OPERAND_KNOBS if space == "medium" else KNOB_INDEX.keys()
    return tuple(a.primitive in SPACES[space] and (a.knob is None or a.knob in moved) for a in ACTIONS)
