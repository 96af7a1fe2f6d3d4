"""Kernels on tensor cores with mma.sync (sm_80 and newer)."""
