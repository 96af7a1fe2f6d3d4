"""Schedules of fused memory-bound operators: kernels that pass over rows, with values placed at levels of memory."""
