"""Pages and tables about GPU runs, made from the shipped raw files: `python -m experiments.evidence`."""
