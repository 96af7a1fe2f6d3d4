"""oneDNN Graph Compiler's MHA, float32: `python -m experiments.reproduce table=onednn_mha`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.graphs.published import MHA, SMALL
from experiments.tables.graphs.series import table_of
from experiments.tables.table import Table

NOTES = (
    "Heads lie side by side in rows here, [batch, rows, hidden], as networks have them; in the published graphs they are apart "
    "before, [batch, heads, rows, size], and side by side after.",
    f"Of batch {SMALL} nothing is published.",
)


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of MHA graphs; `limit` caps the batches of each network. MHA_3 and MHA_4 begin with a small batch."""
    wanted = {name: {**({SMALL: None} if name in ("mha_3", "mha_4") else {}), **batches} for name, batches in MHA.items()}
    return [table_of("oneDNN Graph Compiler's MHA, float32: speed over primitives with post-ops", wanted, config, folder, NOTES)]
