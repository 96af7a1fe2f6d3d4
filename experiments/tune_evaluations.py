"""`python -m experiments.tune_evaluations`: see `experiments.tuning.tune_evaluations`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
