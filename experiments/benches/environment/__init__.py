"""Parts of the environment suites (`env`, `start`): the parts of a step, steps of training, and one start in its own process."""
