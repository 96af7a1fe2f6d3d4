"""CUDA kernels on tensor cores with the instruction mma.sync (sm_80 and newer)."""
