"""Stage that times the programs of operators timed on earlier days: their fastest, the first candidates now, torch."""

from __future__ import annotations

from experiments.device.context import Context
from experiments.device.stages import study

FILES = ("known_trials.jsonl", "known_together.jsonl")


def run(context: Context) -> dict[str, object]:
    """Time the kernels of the archive's group `known`; return their numbers by status and the number of operators compared."""
    study.run_group(context, "known", FILES, first=99)
    return digest(context)


def digest(context: Context) -> dict[str, object]:
    """Return the numbers of kernels timed, by status, and of operators compared."""
    return study.digest(context, FILES)
