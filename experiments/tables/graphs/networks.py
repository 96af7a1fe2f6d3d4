"""Whole networks compared with libraries: `python -m experiments.reproduce table=networks`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.benches.fused.process import OURS
from experiments.benches.fused.suite import PACKAGES, versions_of
from experiments.benches.networks.suite import Case
from experiments.studies.stamps import Stamp
from experiments.tables.graphs.measured import conditions, over, rows_of, time_of
from experiments.tables.table import Table

NETWORKS = ("mobilenet_v2", "resnet34", "resnet50", "bert", "gpt2")
NOTE = (
    "Published figures of these networks are of GPUs and of batches that are not public: none stands beside ours. BERT and GPT-2 "
    "whole, at 128 tokens; random weights of a fixed seed."
)
PLAN = "fine"
"""The default plan of `gensor_gym.compile`."""


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The table of networks; `limit` caps them."""
    rows = rows_of(config, folder, [Case(name, 1, tuple(PACKAGES)) for name in NETWORKS[: config.limit]], PLAN)
    columns = ("network", "ours", *PACKAGES, *(f"over {name}" for name in PACKAGES))
    cells = [
        (row["network"], time_of(row, OURS), *(time_of(row, name) for name in PACKAGES),
         *(over(row, name, OURS) for name in PACKAGES))
        for row in rows
    ]  # fmt: skip
    versions = ", ".join(f"{package} {version}" for package, version in versions_of(PACKAGES).items())
    notes = (*conditions(config, rows, PLAN), f"{versions}; inductor is torch.compile with frozen weights.", NOTE)
    return [Table("Networks beside libraries, batch 1", Stamp.REPLICATED, columns, tuple(cells), notes)]
