"""`python -m experiments.fine_tune`: see `experiments.fine_tuning.fine_tune`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
