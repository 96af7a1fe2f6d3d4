"""Generators of CUDA for chains of two products on tensor cores by mma.sync, in the style of FlashAttention-2."""
