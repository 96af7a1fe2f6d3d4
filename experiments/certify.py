"""`python -m experiments.certify`: see `experiments.certification.certify`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
