"""Studies over many tasks and seeds."""
