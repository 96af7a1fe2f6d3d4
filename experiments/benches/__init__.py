"""Benchmark suites of `python -m experiments.bench`. Each is a module whose `run(config, emit)` passes result lines to `emit`."""
