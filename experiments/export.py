"""`python -m experiments.export`: see `experiments.kernels.export`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
