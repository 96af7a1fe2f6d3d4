"""`python -m experiments.study`: see `experiments.studies.search.study`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
