"""Strategies made of two: searches on the analytic model, annealing behind another construction, a learned correction."""
