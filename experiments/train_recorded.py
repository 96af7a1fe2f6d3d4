"""`python -m experiments.train_recorded`: see `experiments.training.recorded.train_recorded`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
