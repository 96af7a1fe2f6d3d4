"""`python -m experiments.tune`: see `experiments.tuning.tune`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
