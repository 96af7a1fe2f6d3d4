"""Graphs of oneDNN Graph Compiler under three plans: no fusion, fine-grain fusion, and coarse-grain fusion in addition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from experiments.benches.fused.process import OURS
from experiments.benches.networks.cases import Case, Row
from experiments.studies.stamps import Stamp
from experiments.tables.graphs.measured import SERIES, conditions, fastest, over, rows_of, time_of
from experiments.tables.table import Cell, Table
from gensor_gym.networks.fusion.rules import PLANS

SIDES = {name: OURS if name == "cut_all" else f"{OURS}/{name}/hot" for name in SERIES}
"""Plan -> name of the timed process that uses it."""
PEER = "inductor"
Published = Mapping[str, Mapping[int, tuple[float, float] | None]]
"""Network -> batch -> speed-ups (fine, fine and coarse); None if nothing is published."""
PRINTED = (
    "Published: oneDNN Graph Compiler on 32 cores, over oneDNN's primitives with post-ops; of this, too, ratios compare, times "
    "do not: one of two gains of coarse fusion, fewer barriers, is nearly nothing on one or two threads."
)


def table_of(title: str, published: Published, config: DictConfig, folder: Path, notes: tuple[str, ...]) -> Table:
    """Table with a row for each network and batch, with at most `limit` batches per network."""
    there = [name for name in SERIES if name in PLANS]
    sides = tuple(SIDES[name] for name in there if name != "cut_all")
    chosen = [(network, batch) for network, batches in published.items() for batch in list(batches)[: config.limit]]
    rows = rows_of(config, folder, [Case(network, batch, (*sides, PEER)) for network, batch in chosen])
    columns = (
        "graph", "batch", "cut everywhere", "fine", "published", "fine, coarse", "published ", "torch.compile", "ours over it",
    )  # fmt: skip
    missing = [name for name in SERIES if name not in there]
    absent = (f"No plan of the name {' or '.join(missing)} is there: its series is empty.",) if missing else ()
    cells = tuple(_row(row, published[row["network"]][row["batch"]]) for row in rows)
    return Table(title, Stamp.REPLICATED, columns, cells, (*conditions(config, rows), *absent, *notes, PRINTED))


def _row(row: Row, published: tuple[float, float] | None) -> tuple[Cell, ...]:
    """Row of a case: times without fusion and of torch.compile, speed-ups over the former, our best plan over the latter."""
    fine, coarse = (over(row, OURS, SIDES[name]) for name in SERIES[1:])
    best = fastest(row, list(SIDES.values()))
    beside = None if best is None else over(row, PEER, best)
    first, second = published or (None, None)
    return row["network"], str(row["batch"]), time_of(row, OURS), fine, first, coarse, second, time_of(row, PEER), beside
