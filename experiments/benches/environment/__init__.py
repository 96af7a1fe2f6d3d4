"""The suites `env` (steps, parts of a step, training) and `start` (the start of an environment in its own process)."""
