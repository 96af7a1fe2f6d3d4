"""Stages of a run on a device, in STAGES in their order. The stage NAME is the function `run` of the module NAME."""

from __future__ import annotations

from experiments.device.runner import Stage


def _stage(name: str, weight: float, least: float = 5.0) -> Stage:
    """The stage of the module `name`; weights are seconds of a 575-second run."""
    return Stage(name, f"{__name__}.{name}:run", weight, least)


STAGES = (
    _stage("first_contact", 12.0), _stage("study", 310.0), _stage("known", 30.0), _stage("networks", 60.0, 20.0),
    _stage("correctness", 30.0, 20.0), _stage("operators", 280.0, 30.0), _stage("environment", 70.0, 20.0),
    _stage("adaptive", 50.0, 20.0), _stage("fused", 30.0, 20.0),
)  # fmt: skip
OF_ARCHIVE = ("first_contact", "study", "known", "networks")
"""Stages that time the kernels of `plan=archive`."""
WITHOUT_ARCHIVE = ("correctness", "operators")
"""Stages that replace OF_ARCHIVE if nothing was compiled beforehand."""


def by_default(archive: bool) -> tuple[str, ...]:
    """Names of the default stages, with or without an archive."""
    left_out = WITHOUT_ARCHIVE if archive else OF_ARCHIVE
    return tuple(stage.name for stage in STAGES if stage.name not in left_out)
