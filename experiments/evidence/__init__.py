"""Pages about GPU results, made from shipped raw files: `python -m experiments.evidence`."""
