"""Schedules of fused memory-bound operators: passes over rows, with values placed at levels of memory."""
