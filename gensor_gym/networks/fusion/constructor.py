"""The constructor `descent`: it finds a good program of any piece by the models, cheaply, and the same program at every call.

The price of a piece needs one program. A descent sets one column or field after another to its best value until no change is an
improvement. Descents of loop nests begin at the unscheduled program and at `DRAWN` seeded random programs. Those of row nests and
chains begin at the best of all settings of their loops, because from one row for each task no single change is an improvement.
Those of row nests also begin at such settings for the placement of values that panels use. For chains on a GPU all programs are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.graph import ChainGraph
from gensor_gym.chains.panel import panel_of
from gensor_gym.chains.room import placement
from gensor_gym.codegen.chains.panel import row_shape
from gensor_gym.codegen.families import AnySchedule, family_of, graph_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.exact.incumbent import incumbent
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.model import GirModel
from gensor_gym.gir.placement import levels_of
from gensor_gym.gir.schedule import HEADER, make_schedule
from gensor_gym.graph.coordinates import moved_knobs
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator
from gensor_gym.winograd.graph import WinogradGraph

NAME = "descent"
DRAWN = 8
"""Random programs at which further descents of a loop nest begin. With 2, a product was up to 38 % above the best of 32."""
_OF_PRODUCTS = 8
"""The first fields of a chain's schedule, which are of its products; the last two are of the row nest between them."""


def constructed(computation: Operator | Dataflow, hardware: Hardware) -> tuple[AnySchedule, float]:
    """(schedule, seconds by the model) of a computation; ValueError if no kernel of the machine supports it."""
    family = family_of(computation)
    graph: Any = graph_of(computation, hardware)
    if isinstance(graph, ConstructionGraph):
        schedule, seconds = _nest_of(graph.operator, hardware)
        rest = _rows_after(computation, hardware) if family.scheduled(computation) is not computation else 0.0
        return schedule, seconds + rest
    if isinstance(graph, GpuChainGraph | WinogradGraph):
        if not len(rows := np.concatenate([graph.stack([]), *graph.enumerate()])):
            raise ValueError(f"{computation} on {hardware.name}: no program fits")
        found = graph.latencies(rows)
        return graph.schedule(rows[found.argmin()]), float(found.min())
    row, seconds = min((_descended(graph, row) for row in _starts(graph)), key=lambda pair: pair[1])
    if seconds == np.inf:
        raise ValueError(f"{computation} on {hardware.name}: no program fits")
    return graph.schedule(row), seconds


@lru_cache(maxsize=1 << 12)
def _nest_of(op: Operator, hardware: Hardware) -> tuple[AnySchedule, float]:
    """(schedule, seconds) of a loop nest. Cached, because many panels of a network have the same product."""
    graph = ConstructionGraph(op, hardware, "extended")
    row, seconds, _ = incumbent(graph, moved_knobs(graph.tables.ints), DRAWN)
    return graph.schedule(row), float(seconds)


def _rows_after(computation: Any, hardware: Hardware) -> float:
    """Seconds that the rows of a panel add to its product: their instructions, and the traffic of other operands and outputs.

    The rows read the product's value from a near cache. The product's model counts one write of this value. The formula is ours.
    """
    if hardware.kind != "cpu":
        raise ValueError(f"{computation} on {hardware.name}: panels have kernels on CPUs only")
    panel = panel_of(computation)
    shape = row_shape(panel, hardware)
    fields = {"vector": shape.vector, "rows": shape.rows, "tile": shape.tile}
    terms = GirModel(panel.nest, hardware).terms(make_schedule(fields, panel.lowered.placement).row[None])[0]
    moved = panel.nest.graph.compulsory_bytes
    own = moved - 2 * panel.product.output.nbytes
    return float(terms[2:6].sum() + terms[6:].sum() * max(0, own) / moved)


def _starts(graph: Any) -> Iterator[np.ndarray]:
    """Schedules, as rows of int32, at which the descents of a row nest or a chain begin."""
    row = graph.initial().row
    if isinstance(graph, ChainGraph):
        yield _best_settings(graph, row, _OF_PRODUCTS)
        return
    yield _best_settings(graph, row, HEADER)
    if graph.nest.crossing:
        kept = row.copy()
        kept[HEADER : HEADER + len(graph.nest.crossing)] = placement(graph.nest)
        yield _best_settings(graph, kept, HEADER)


def _best_settings(graph: Any, row: np.ndarray, count: int) -> np.ndarray:
    """The cheapest row with any values of the first `count` fields."""
    rows = np.repeat(row[None], (graph.kind.tops[:count] + 1).prod(), axis=0)
    rows[:, :count] = np.indices(graph.kind.tops[:count] + 1).reshape(count, -1).T
    found: np.ndarray = rows[graph.latencies(rows).argmin()]
    return found


def _descended(graph: Any, row: np.ndarray) -> tuple[np.ndarray, float]:
    """(row, seconds) at the end of a descent over fields and placements; infinite seconds if no schedule near is legal."""
    values = [np.arange(top + 1) for top in graph.kind.tops]
    if isinstance(graph, GirGraph):
        levels = [np.array(levels_of(graph.nest, name), np.int64) for name in graph.nest.crossing]
        values = [*values[:HEADER], *levels]
    best, idle, place = float(graph.latencies(row[None])[0]), 0, 0
    while idle < len(values):
        others = np.repeat(row[None], len(values[place]), axis=0)
        others[:, place] = values[place]
        seconds = graph.latencies(others)
        idle += 1
        if seconds.min() < best:
            row, best, idle = others[int(seconds.argmin())], float(seconds.min()), 0
        place = (place + 1) % len(values)
    return row, best
