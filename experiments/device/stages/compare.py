"""Stage 5: strategies of all kinds under equal trials, each in its own space (conf/bench/gpu.yaml)."""

from __future__ import annotations

from pathlib import Path

from experiments.device.context import Context
from experiments.device.stages.contests import run_contest
from experiments.device.stages.standings import standings
from experiments.device.table import read_table

FILE = "results.jsonl"


def run(context: Context) -> dict[str, object]:
    """Search, then time the winners together."""
    run_contest(context, read_table().compare, FILE)
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """What the rows say so far."""
    return standings(out / FILE, run, list(read_table().compare.strategies))
