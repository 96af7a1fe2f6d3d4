"""Targets by name, and the target of a machine. Everything that depends on a language uses one of these."""

from __future__ import annotations

from gensor_gym.codegen.targets.c import CTarget
from gensor_gym.codegen.targets.cuda import CudaTarget
from gensor_gym.codegen.targets.hip import HipTarget
from gensor_gym.codegen.targets.target import Target
from gensor_gym.hardware.types import Hardware
from gensor_gym.registry import near

__all__ = ["TARGETS", "Target", "get", "target_of"]

TARGETS: dict[str, Target] = {target.name: target for target in (CTarget(), CudaTarget(), HipTarget())}
"""Language -> target; add an entry for a language of your own."""


def get(language: str) -> Target:
    """The target of that name; ValueError names those there are."""
    if language not in TARGETS:
        raise ValueError(f"no target {language!r}; accepted: {', '.join(TARGETS)}{near(language, TARGETS)}")
    return TARGETS[language]


def target_of(hw: Hardware) -> Target:
    """The target of a machine; ValueError if kernels for it are written in no language."""
    found = next((target for target in TARGETS.values() if target.accepts(hw)), None)
    if found is None:
        names = ", ".join(TARGETS)
        raise ValueError(f"no target writes kernels for {hw.name}, a {hw.kind} of architecture {hw.arch!r}; there are {names}")
    return found
