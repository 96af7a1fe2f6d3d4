"""Schedules of fused memory-bound operators: kernels that traverse rows, with values placed at levels of memory."""
