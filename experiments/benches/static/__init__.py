"""Kernels of every family compiled without a device: reports of assembler and disassembler, as lines and as a table."""
