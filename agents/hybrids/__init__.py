"""Combined strategies: searches by the analytic model, annealing after another strategy, and a learned correction."""
