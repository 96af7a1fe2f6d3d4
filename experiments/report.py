"""`python -m experiments.report`: see `experiments.reports.report`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
