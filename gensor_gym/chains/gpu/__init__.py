"""Chains on GPUs: schedules and their graph, limits of the hardware, the analytic model, and the passes over tiles of keys."""
