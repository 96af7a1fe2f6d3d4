"""Ansor's mutation of tile sizes (section 5.1): a factor of an axis moves from one level to another.

The factors of an axis, from the innermost, are the register tile, the virtual threads (on a GPU), each further level, and the
grid of outermost tiles. A move divides one factor by p > 1 and multiplies another by p. All cumulative sizes between the two
levels thus change by p. Tile sizes need not divide the extent, so the grid may gain or lose any factor that leads to an existing
chain (list of tile sizes by level).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.tables.layout import MAX_LEVELS

Groups = list[np.ndarray]
"""Chains (an axis's tile sizes by level) that are one move away from a chain: one array [N, levels + 1] per pair of levels."""


class TileMoves:
    """Mutations of one axis's tile sizes, each by a single move of a factor between two levels.

    A chain is the list of an axis's tile sizes by level. The chains one move away from a chain are computed at first use.
    """

    def __init__(self, chains: np.ndarray, levels: int) -> None:
        """Prepare the moves between `chains`, int32 [C, MAX_LEVELS + 1].

        Each chain lists the tile sizes of one axis by level. Only the first `levels` sizes are used.
        """
        self._chains = chains
        inner = chains[:, 0] // chains[:, MAX_LEVELS]
        self._sizes = np.column_stack([inner, chains[:, :levels]]).astype(np.int64)
        self._at = {chain.tobytes(): i for i, chain in enumerate(chains)}
        self._known: dict[tuple[int, bool], Groups] = {}

    def groups(self, chain: np.ndarray, granularity: bool = False) -> Groups:
        """Return the chains (tile sizes by level) that are one move away from `chain`, grouped by the pair of levels.

        With `granularity`, a move must be between the outermost tile and the grid. KeyError for a chain that is not of this axis.
        """
        key = (self._at[np.ascontiguousarray(chain, dtype=np.int32).tobytes()], granularity)
        if key not in self._known:
            self._known[key] = self._outer(key[0]) if granularity else self._all(key[0])
        return self._known[key]

    def _all(self, index: int) -> Groups:
        """Return the chains (tile sizes by level) that are one move away from chain number `index`.

        They are grouped by direction (multiply or divide) and by the first and last cumulative size that changes.
        """
        spans = _spans(self._sizes, index)
        order = np.argsort(spans, kind="stable")
        order = order[np.searchsorted(spans[order], 0) :]
        edges = np.flatnonzero(np.diff(spans[order])) + 1
        return [self._chains[part] for part in np.split(order, edges)] if len(order) else []

    def _outer(self, index: int) -> Groups:
        inside = (self._sizes[:, :-1] == self._sizes[index, :-1]).all(axis=1)
        same_threads = self._chains[:, MAX_LEVELS] == self._chains[index, MAX_LEVELS]
        others = inside & same_threads & (self._sizes[:, -1] != self._sizes[index, -1])
        return [self._chains[others]] if others.any() else []


@compiled
def _spans(sizes, index):  # noqa: ANN001, ANN202
    """Return for every chain (tile sizes by level) the number of the move from chain `index` to it, int64 [C]; -1 for none.

    A move multiplies or divides the cumulative sizes of a range of levels by one ratio. Its number encodes direction and range.
    Multiplying moves have the lowest numbers, sorted from ranges that begin at an outer level.
    """
    chains, width = sizes.shape
    spans = np.full(chains, -1, dtype=np.int64)
    for c in range(chains):
        first, last = -1, -1
        for i in range(width):
            if sizes[c, i] != sizes[index, i]:
                first, last = (i if first < 0 else first), i
        if first >= 0 and _is_move(sizes, index, c, first, last):
            down = sizes[c, first] < sizes[index, first]
            spans[c] = (down * width + width - 1 - first) * width + last
    return spans


@lean
def _is_move(sizes, one, other, first, last):  # noqa: ANN001, ANN202
    up = sizes[other, first] > sizes[one, first]
    big, small = (other, one) if up else (one, other)
    ratio = sizes[big, first] // sizes[small, first]
    for i in range(first, last + 1):
        if sizes[big, i] != ratio * sizes[small, i]:
            return False
    return True


def pick(groups: Sequence[np.ndarray], levels: float, factor: float) -> np.ndarray | None:
    """Choose a random move and return the chain (tile sizes by level) that it leads to; None if `groups` is empty.

    Of the uniform random numbers in [0, 1), `levels` chooses the group (pair of levels) and `factor` the chain in it.
    """
    if not groups:
        return None
    group = groups[int(levels * len(groups))]
    return np.asarray(group[int(factor * len(group))])
