"""Stages of a run on a GPU, listed in order by `STAGES`; each is the function `run` of the module with its name."""

from __future__ import annotations

from experiments.device.runner import Stage


def _stage(name: str, weight: float, least: float = 5.0) -> Stage:
    """Return the stage of the module `name`; a weight is the stage's seconds in a run of 575 seconds."""
    return Stage(name, f"{__name__}.{name}:run", weight, least)


STAGES = (
    _stage("first_contact", 12.0), _stage("study", 310.0), _stage("known", 30.0), _stage("networks", 60.0, 20.0),
    _stage("correctness", 30.0, 20.0), _stage("operators", 280.0, 30.0), _stage("environment", 70.0, 20.0),
    _stage("adaptive", 50.0, 20.0), _stage("fused", 30.0, 20.0),
)  # fmt: skip
OF_ARCHIVE = ("first_contact", "study", "known", "networks")
"""Stages that time the compiled kernels of an archive (`plan=archive`)."""
WITHOUT_ARCHIVE = ("correctness", "operators")
"""Stages that run in place of OF_ARCHIVE if there is no archive."""


def by_default(archive: bool) -> tuple[str, ...]:
    """Return the names of the stages that run by default, with or without an archive of compiled kernels."""
    left_out = WITHOUT_ARCHIVE if archive else OF_ARCHIVE
    return tuple(stage.name for stage in STAGES if stage.name not in left_out)
