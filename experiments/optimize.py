"""`python -m experiments.optimize`: see `experiments.kernels.optimize`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
