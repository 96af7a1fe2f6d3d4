"""Stage: searches that learn from their trials, ten each, on operators of the study; kernels are compiled during the stage.

conf/experiment/gpu_adaptive.yaml lists the strategies.
"""

from __future__ import annotations

from experiments.device.context import Context
from experiments.device.stages.contests import run_contest
from experiments.device.stages.standings import standings
from experiments.device.table import CONF, read_experiment

EXPERIMENT = CONF / "experiment" / "gpu_adaptive.yaml"
FILE = "adaptive.jsonl"


def run(context: Context) -> dict[str, object]:
    """Search, then time the winners together; return the digest."""
    run_contest(context, read_experiment(EXPERIMENT), FILE)
    return digest(context)


def digest(context: Context) -> dict[str, object]:
    """Results of the rows so far."""
    return standings(context.rows(FILE), list(read_experiment(EXPERIMENT).strategies))
