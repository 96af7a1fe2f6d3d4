"""`python -m experiments.bench`: see `experiments.benches.bench`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
