"""Experiments: compare, train, reproduce, bench; run each with `python -m`."""
