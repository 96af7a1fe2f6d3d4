"""IntelliGen (arXiv 2307.04995, in its text PowerFusion): our stand-in suite next to its averages, and an ablation of its steps.

`python -m experiments.reproduce table=intelligen`. The suite is read from lines of `python -m experiments.bench suite=fused`; the
ablation is repeated, by the model and measured, and so are the facts on a GPU that need no device.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.gensor.searches import LIVE, MODEL, tiers_of
from experiments.tables.intelligen import ablation, gpu, suite
from experiments.tables.table import Table


def make(config: DictConfig, folder: Path) -> list[Table]:
    """The suite, Ansor's NRM in it, and the ablation in the tiers asked for; `limit` bounds the operators of each table."""
    tiers = tiers_of(config)
    tables = suite.tables(Path(config.lines) if config.lines else suite.LINES, config.limit)
    if MODEL in tiers:
        tables += [ablation.predicted(config), gpu.predicted(config)]
    if LIVE in tiers:
        tables.append(ablation.measured(config, folder))
    return tables
