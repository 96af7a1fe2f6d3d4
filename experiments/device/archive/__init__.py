"""Kernels compiled before a device is at hand: drawn, compiled, packed here; unpacked, verified and timed there."""
