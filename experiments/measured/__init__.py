"""Measured v1: verified CPU times of programs of many operators. `gensor collect` records them."""
