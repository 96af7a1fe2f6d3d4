"""The suites of `python -m experiments.bench`, one file each: `run(config, emit)` writes lines through `emit`."""
