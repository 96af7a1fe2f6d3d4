"""`python -m experiments.train`: see `experiments.training.train`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
