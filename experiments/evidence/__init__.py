"""Pages on what a GPU said, made from raw files that are shipped: `python -m experiments.evidence`."""
