"""`python -m experiments.transfer_recorded`: see `experiments.studies.transfer_recorded.transfer_recorded`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
