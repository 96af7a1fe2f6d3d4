"""Kernels of every family compiled without a device: reports of assembler and disassembler, as lines and as a table."""

from experiments.benches.static.suite import run

__all__ = ["run"]
