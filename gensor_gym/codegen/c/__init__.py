"""Generator of C for CPU programs: the plan of a kernel, loops over tasks and tiles, packing. `micro/` has the micro-kernel.

A task computes a task tile of the output on one thread, one block of the reduction after another. If the reduction is split,
tasks of one tile each take a chunk of these blocks. Loops over L1 tiles call the micro-kernel, which computes a register tile:
rows of accumulators, each in one or more vectors (`plan.Chunk`). Operands are read in place or packed, in panels as wide as the
register tile or as a box (`layout/operands.py`).
"""
