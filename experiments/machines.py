"""`python -m experiments.machines`: see `experiments.studies.machines.study`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
