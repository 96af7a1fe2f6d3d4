"""Kernels on tensor cores by wgmma and TMA (sm_90a)."""
