"""Targets (languages of kernels) by name, and the target of a machine. All language-dependent code calls their methods."""

from __future__ import annotations

from gensor_gym.codegen.targets.c import CTarget
from gensor_gym.codegen.targets.cuda import CudaTarget
from gensor_gym.codegen.targets.hip import HipTarget
from gensor_gym.codegen.targets.target import Target
from gensor_gym.hardware.types import Hardware
from gensor_gym.registry import near

__all__ = ["TARGETS", "Target", "get", "target_of"]

TARGETS: dict[str, Target] = {target.name: target for target in (CTarget(), CudaTarget(), HipTarget())}
"""Language -> target; add an entry to support another language."""


def get(language: str) -> Target:
    """Return the target of a language; for an unknown language, a ValueError lists the known ones."""
    if language not in TARGETS:
        raise ValueError(f"no target {language!r}; accepted: {', '.join(TARGETS)}{near(language, TARGETS)}")
    return TARGETS[language]


def target_of(hw: Hardware) -> Target:
    """Return the target that writes kernels for a machine; ValueError if no target does."""
    found = next((target for target in TARGETS.values() if target.accepts(hw)), None)
    if found is None:
        names = ", ".join(TARGETS)
        raise ValueError(f"no target writes kernels for {hw.name}, a {hw.kind} of architecture {hw.arch!r}; there are {names}")
    return found
