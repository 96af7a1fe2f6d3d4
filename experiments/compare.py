"""`python -m experiments.compare`: see `experiments.comparison.compare`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
