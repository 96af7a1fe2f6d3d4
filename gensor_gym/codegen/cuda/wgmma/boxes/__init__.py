"""Stores of a wgmma kernel's 16-bit output through shared memory and TMA, in boxes."""
