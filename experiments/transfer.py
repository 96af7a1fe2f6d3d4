"""`python -m experiments.transfer`: see `experiments.studies.transfer.transfer`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
