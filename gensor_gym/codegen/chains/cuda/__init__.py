"""Generators of CUDA for chains of two products on tensor cores, in the style of FlashAttention-2 (mma.sync) and -3 (wgmma)."""
