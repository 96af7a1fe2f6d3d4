"""Stage 6: a learned policy beside the traverser and random programs, one space, operators that no policy was trained on.

The stage compares what `python -m experiments.compare experiment=gpu_policies` does (conf/experiment/gpu_policies.yaml), as far
as its time goes: two seeds of every operator, operator by operator, then the next seeds.
"""

from __future__ import annotations

from pathlib import Path

from experiments.device.context import Context
from experiments.device.stages.contests import run_contest
from experiments.device.stages.standings import standings
from experiments.device.table import read_experiment

FILE = "policies.jsonl"


def run(context: Context) -> dict[str, object]:
    """Search, then time the winners together."""
    run_contest(context, read_experiment(), FILE)
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """What the rows say so far."""
    return standings(out / FILE, run, list(read_experiment().strategies))
