"""Kernels on tensor cores by mma.sync (sm_80 and newer)."""
