"""Parts of the environment suites (`env`, `start`): the parts of a step, steps of learning, one start in its process."""
