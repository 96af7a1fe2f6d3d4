"""Generator of C for CPU programs: the plan, loops over tasks and tiles, packing. `micro/` has the micro-kernel."""
