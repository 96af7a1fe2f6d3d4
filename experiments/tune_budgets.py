"""`python -m experiments.tune_budgets`: see `experiments.tuning.tune_budgets`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
