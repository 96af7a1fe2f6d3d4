"""Schedules of fused memory-bound operators: rows that are gone through in passes, values placed by level of memory."""
