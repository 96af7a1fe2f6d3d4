"""C for CPU programs: the plan, loops over tasks and tiles, packing; the micro-kernel is in `micro/`."""
