"""Entry of `python -m experiments.compare`; the command itself is `experiments.comparison.compare`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
