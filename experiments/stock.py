"""`python -m experiments.stock`: see `experiments.studies.stock.study`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
