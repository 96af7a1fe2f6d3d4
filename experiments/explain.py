"""`python -m experiments.explain`: see `experiments.certification.explain`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
