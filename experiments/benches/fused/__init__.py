"""Fused operators beside torch eager, torch.compile and ONNX Runtime, each in a process of its own, in turns."""

from experiments.benches.fused.suite import run

__all__ = ["run"]
