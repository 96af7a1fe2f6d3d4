"""oneDNN Graph Compiler's MHA, float32, under three plans: no fusion, fine-grain fusion, and coarse-grain fusion in addition.

Run it by `python -m experiments.reproduce table=onednn_mha`. `onednn_mlp` has the same columns. Published values are speed-ups
over oneDNN's primitives with post-ops (Li et al., arXiv 2301.01333, charts of the RFC in oneDNN's repository), measured from the
pictures, to about 0.02. The authors used 32 cores of a CPU that the charts do not name, and benchdnn with one thread per core.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from experiments.benches.fused.process import OURS
from experiments.benches.networks.suite import Case, Row
from experiments.studies.stamps import Stamp
from experiments.tables.graphs.measured import conditions, fastest, over, rows_of, time_of
from experiments.tables.table import Cell, Table
from gensor_gym.networks.fusion.rules import PLANS

SIDES = {"cut_all": OURS, "fine": f"{OURS}/fine/hot", "fine_coarse": f"{OURS}/fine_coarse/hot"}
"""Plan (primitives with post-ops, fine-grain fusion, also coarse-grain fusion) -> name of the timed process that uses it."""
PEER = "inductor"
Published = Mapping[str, Mapping[int, tuple[float, float] | None]]
"""Network -> batch -> speed-ups (fine, fine and coarse); None if nothing is published."""
MHA: Published = {
    "mha_1": {32: (1.16, 1.30), 64: (1.03, 1.28), 128: (1.24, 1.62)},
    "mha_2": {32: (1.30, 1.60), 64: (1.11, 1.48), 128: (1.28, 1.86)},
    "mha_3": {8: None, 32: (1.44, 1.82), 64: (1.32, 1.68), 128: (1.38, 1.76)},
    "mha_4": {8: None, 32: (1.64, 2.55), 64: (1.82, 2.84), 128: (2.17, 3.34)},
}
NOTES = (
    "Heads lie side by side in rows here, [batch, rows, hidden], as networks have them; in the published graphs they are apart "
    "before, [batch, heads, rows, size], and side by side after.",
    "Of batch 8 nothing is published.",
)
PRINTED = (
    "Published: oneDNN Graph Compiler on 32 cores, over oneDNN's primitives with post-ops; of this, too, ratios compare, times "
    "do not: one of two gains of coarse fusion, fewer barriers, is nearly nothing on one or two threads."
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of MHA graphs; `limit` caps the batches of each network."""
    return table_of("MHA", MHA, config, folder, NOTES)


def table_of(kind: str, published: Published, config: DictConfig, folder: Path, notes: tuple[str, ...] = ()) -> list[Table]:
    """Table with a row for each network and batch, with at most `limit` batches per network."""
    there = [name for name in SIDES if name in PLANS]
    sides = tuple(SIDES[name] for name in there if name != "cut_all")
    chosen = [(network, batch) for network, batches in published.items() for batch in list(batches)[: config.limit]]
    rows = rows_of(config, folder, [Case(network, batch, (*sides, PEER)) for network, batch in chosen])
    columns = (
        "graph", "batch", "cut everywhere", "fine", "published", "fine, coarse", "published ", "torch.compile", "ours over it",
    )  # fmt: skip
    missing = [name for name in SIDES if name not in there]
    absent = (f"No plan of the name {' or '.join(missing)} is there: its series is empty.",) if missing else ()
    cells = tuple(_row(row, published[row["network"]][row["batch"]]) for row in rows)
    title = f"oneDNN Graph Compiler's {kind}, float32: speed over primitives with post-ops"
    return [Table(title, Stamp.REPLICATED, columns, cells, (*conditions(config, rows), *absent, *notes, PRINTED))]


def _row(row: Row, published: tuple[float, float] | None) -> tuple[Cell, ...]:
    """Row of a case: times unfused and of torch.compile, speed-ups over unfused, and of our best plan over torch.compile."""
    fine, coarse = (over(row, OURS, SIDES[name]) for name in ("fine", "fine_coarse"))
    best = fastest(row, list(SIDES.values()))
    beside = None if best is None else over(row, PEER, best)
    first, second = published or (None, None)
    return row["network"], str(row["batch"]), time_of(row, OURS), fine, first, coarse, second, time_of(row, PEER), beside
