"""`python -m experiments.check_certificates`: see `experiments.certification.check_certificates`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
