"""The suites about environments, `env` and `start`: the parts of a step, steps of training, and a start in its own process."""
