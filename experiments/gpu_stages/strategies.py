"""Stage 5: strategies of all kinds under equal trials, each in its own space (conf/bench/gpu.yaml)."""

from __future__ import annotations

from pathlib import Path

from experiments.gpu_stages.contests import run_contest
from experiments.gpu_stages.context import Context
from experiments.gpu_stages.standings import standings
from experiments.gpu_stages.table import read_table

FILE = "results.jsonl"


def run(context: Context) -> dict[str, object]:
    """Search, then time the winners together."""
    run_contest(context, read_table().compare, FILE)
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """What the rows say so far."""
    return standings(out / FILE, run, list(read_table().compare.strategies))
