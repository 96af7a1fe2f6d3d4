"""Stage: for operators timed on earlier days, the fastest programs of those days, the model's first choices of today, and torch.

The results show how today's generated text and model compare with earlier days. All programs are in the archive.
"""

from __future__ import annotations

from experiments.device.context import Context
from experiments.device.stages import study

FILES = ("known_trials.jsonl", "known_together.jsonl")


def run(context: Context) -> dict[str, object]:
    """Time the kernels of the archive's group `known`; return the digest."""
    study.run_group(context, "known", FILES, first=99)
    return digest(context)


def digest(context: Context) -> dict[str, object]:
    """Counts of the rows, as in the digest of the study."""
    return study.digest(context, FILES)
