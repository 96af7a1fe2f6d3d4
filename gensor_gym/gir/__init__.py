"""Schedules of fused memory-bound operators (softmax, layer norm, elementwise functions).

Kernels traverse rows, and a schedule chooses the memory level that keeps each value between two traversals of a row.
"""
