"""Kernels of every family without a device: what assembler and disassembler say of them, as lines and as a table."""

from experiments.benches.static.suite import run

__all__ = ["run"]
