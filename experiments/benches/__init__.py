"""Suites of `python -m experiments.bench`, one module each, whose `run(config, emit)` writes result lines through `emit`."""
