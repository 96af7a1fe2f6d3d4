"""Compiled modules compared with torch: on torch's operator database, on KernelBench, and on models by name."""
