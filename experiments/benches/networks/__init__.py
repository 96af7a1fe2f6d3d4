"""Whole networks compared with torch eager, Inductor and ONNX Runtime."""

from experiments.benches.networks.suite import run

__all__ = ["run"]
