"""What suites of the environment (`env`, `start`) are made of: parts of a step, steps of learning, one start in its process."""
