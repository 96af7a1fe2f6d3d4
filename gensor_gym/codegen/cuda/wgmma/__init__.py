"""CUDA kernels on tensor cores with wgmma and TMA (sm_90a)."""
