"""`python -m experiments.sweep_table`: see `experiments.training.sweep_table`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
