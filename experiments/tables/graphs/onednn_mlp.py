"""oneDNN Graph Compiler's MLP, float32: `python -m experiments.reproduce table=onednn_mlp`. See `onednn_mha`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.graphs.onednn_mha import table_of
from experiments.tables.table import Table

MLP = {
    "mlp_1": {32: (1.37, 1.58), 64: (1.27, 1.39), 128: (1.13, 1.36), 256: (1.17, 1.27), 512: (1.53, 1.85)},
    "mlp_2": {32: (0.96, 1.00), 64: (0.96, 1.06), 128: (0.91, 1.00), 256: (0.94, 1.01), 512: (1.01, 1.01)},
}


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of MLP graphs; `limit` caps the batches of each network."""
    return table_of("MLP", MLP, config, folder)
