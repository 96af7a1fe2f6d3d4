"""Studies: comparisons of strategies and policies over many tasks and seeds."""
