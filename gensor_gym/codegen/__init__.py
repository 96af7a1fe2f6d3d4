"""Code generation: `generate` turns a schedule into C, CUDA or HIP, `build` also compiles it and returns a callable kernel."""

from __future__ import annotations

from gensor_gym.codegen.build import build, generate

__all__ = ["build", "generate"]
