"""Generators of CUDA for chains of two products on tensor cores by mma.sync, in the manner of FlashAttention-2."""
