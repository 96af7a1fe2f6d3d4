"""Stage: operators that a device timed before: the fastest programs of earlier days, the model's first choices of today, torch.

They compare today's generated text and model with those of then. All are in the archive.
"""

from __future__ import annotations

from pathlib import Path

from experiments.device.context import Context
from experiments.device.stages import study

FILES = ("known_trials.jsonl", "known_together.jsonl")


def run(context: Context) -> dict[str, object]:
    """The group `known` of the archive."""
    study.run_group(context, "known", FILES, first=99)
    return digest(Path(context.out), context.run)


def digest(out: Path, run: str) -> dict[str, object]:
    """As of the study."""
    return study.digest(out, run, FILES)
