"""Chains on GPUs: the passes along tiles of keys, schedules, what fits, and the analytic model."""
