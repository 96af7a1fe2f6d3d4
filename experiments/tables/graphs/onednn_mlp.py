"""oneDNN Graph Compiler's MLP, float32: `python -m experiments.reproduce table=onednn_mlp`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.graphs.published import MLP
from experiments.tables.graphs.series import table_of
from experiments.tables.table import Table


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of MLP graphs; `limit` caps the batches of each network."""
    return [table_of("oneDNN Graph Compiler's MLP, float32: speed over primitives with post-ops", MLP, config, folder, ())]
