"""Cost of giving blocks equal shares of all reduction steps (`persistent` = 2) instead of whole tiles. Compiled.

Unlike whole tiles, equal shares leave no uneven last wave. The cost: partial tiles are written to the workspace and read again.
"""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.tensor_cores import EQUAL_SHARES
from gensor_gym.graph.tables.geometry import computed_product, power_value
from gensor_gym.graph.tables.layout import CLUSTER, PERSISTENT
from gensor_gym.graph.tables.tables import L2_BW, L2_LATENCY


@lean
def shares_steps(row, blocks, steps, places):  # noqa: ANN001, ANN201
    """Whether blocks take equal shares of all reduction steps, instead of whole tiles.

    There are `blocks` output tiles, each with `steps` steps; the device runs `places` blocks at a time.
    """
    return row[PERSISTENT] == EQUAL_SHARES and steps > 1 and blocks % sharing(row, blocks, steps, places) != 0


@lean
def sharing(row, blocks, steps, places):  # noqa: ANN001, ANN201
    """Return how many blocks share the steps of `blocks` tiles, in whole clusters: at most `places`, each with a step or more."""
    together = power_value(row[CLUSTER])
    return min(max(1, places // together), blocks // together * steps) * together


@lean
def parts_of_tiles(blocks, shares):  # noqa: ANN001, ANN201
    """Return how many partial tiles must be added up, if the steps of `blocks` tiles are cut into `shares` equal shares.

    A tile with c > 0 cuts has c + 1 parts; a tile without a cut has nothing to add.
    """
    return min(2 * shares, blocks + shares)


@lean
def addition(row, blocks, shares, ints, floats):  # noqa: ANN001, ANN201
    """Return the seconds to store partial tiles in the workspace and add them up, 4 bytes a sum.

    All parts are written and read once. A tile's last block waits for its own store, for the counter, and for other blocks'
    parts.
    """
    moved = 2.0 * parts_of_tiles(blocks, shares) * computed_product(row, 1, ints) * 4.0
    return moved / floats[L2_BW] + 3.0 * floats[L2_LATENCY]
