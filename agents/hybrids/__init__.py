"""Combined strategies: searches on the analytic model, annealing after another construction, a learned correction."""
