"""Fused operators compared with torch eager, torch.compile and ONNX Runtime, alternating, each in its own process."""

from experiments.benches.fused.suite import run

__all__ = ["run"]
