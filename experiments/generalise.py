"""`python -m experiments.generalise`: see `experiments.studies.generalise.generalise`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
