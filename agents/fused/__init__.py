"""Strategies for fused operators."""
