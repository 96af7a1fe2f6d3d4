"""Reproduction of IntelliGen (PowerFusion in arXiv 2307.04995): fused operators, and an ablation of its steps.

Run it by `python -m experiments.reproduce table=intelligen`. Our stand-in suite is read from lines of `python -m
experiments.bench suite=fused` and shown next to the paper's averages. The ablation is repeated, on the model and measured, and
facts about a GPU that need no device are added.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from experiments.tables.gensor.searches import LIVE, MODEL, tiers_of
from experiments.tables.intelligen import ablation, suite
from experiments.tables.table import Table


def make(config: DictConfig, folder: Path) -> list[Table]:
    """Make tables of the suite, of Ansor's NRM, and of the ablation in the requested tiers (model, measurements).

    `limit` is the largest number of operators of each.
    """
    tiers = tiers_of(config)
    tables = suite.tables(Path(config.lines) if config.lines else suite.LINES, config.limit)
    if MODEL in tiers:
        tables += [ablation.predicted(config), suite.predicted(config)]
    if LIVE in tiers:
        tables.append(ablation.measured(config, folder))
    return tables
