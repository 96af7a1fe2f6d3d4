"""Generator of C for CPU programs: plan, loops over tasks and tiles, packing. `micro/` has the micro-kernel."""
