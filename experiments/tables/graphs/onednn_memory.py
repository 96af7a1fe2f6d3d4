"""Effect of reusing the memory between kernels: `python -m experiments.reproduce table=onednn_memory`.

The modes are those of oneDNN Graph Compiler's buffer planner: no reuse, whole reuse, and hot memory first, its default. Its
authors print no figures.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.benches.fused.process import OURS
from experiments.benches.networks.suite import Case, Row
from experiments.studies.stamps import Stamp
from experiments.tables.graphs.measured import conditions, megabytes, over, rows_of, time_of
from experiments.tables.table import Cell, Table

NETWORKS = ("mobilenet_v2", "resnet50", "bert", "gpt2")
SIDES = {"none": f"{OURS}/cut_all/none", "whole": f"{OURS}/cut_all/whole", "hot": OURS}
"""Mode -> name of the timed process that uses it."""
NOTES = (
    "None: a place of its own for every value, the same at every call, in memory that was touched before; a call pays for "
    "caches, not for fresh pages. Whole: as small as can be. Hot: of the same size, where memory was read last.",
    "Bound: what the kernel that needs most needs at once; no arena is smaller.",
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of networks; `limit` caps them."""
    cases = [Case(name, 1, (SIDES["none"], SIDES["whole"])) for name in NETWORKS[: config.limit]]
    rows = rows_of(config, folder, cases)
    columns = (
        "network", "none", "whole", "hot", "hot over none", "hot over whole", *(f"bytes, {mode}" for mode in SIDES), "bound",
        "hot over bound",
    )  # fmt: skip
    notes = (*conditions(config, rows), *NOTES)
    return [Table("Memory between kernels used again", Stamp.REPLICATED, columns, tuple(map(_row, rows)), notes)]


def _row(row: Row) -> tuple[Cell, ...]:
    """Row of a network: times, ratios and sizes of the modes."""
    times = [time_of(row, side) for side in SIDES.values()]
    ratios = [over(row, SIDES[mode], SIDES["hot"]) for mode in ("none", "whole")]
    if "error" in row:
        return row["network"], *times, *ratios, None, None, None, None, None
    facts = {**row["sides"], OURS: row}
    sizes = [megabytes(facts[side]["arena_bytes"]) if time_of(row, side) else None for side in SIDES.values()]
    least = row["least_arena_bytes"]
    return row["network"], *times, *ratios, *sizes, megabytes(least), row["arena_bytes"] / least
