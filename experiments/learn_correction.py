"""`python -m experiments.learn_correction`: see `experiments.training.learn_correction`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
