"""Code generation: from a schedule to CUDA C or C, compiled and callable. See `build.generate` and `build.build`."""

from __future__ import annotations

from gensor_gym.codegen.build import build, generate

__all__ = ["build", "generate"]
