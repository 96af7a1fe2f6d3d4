"""Entry of `python -m experiments.reproduce`; the command itself is `experiments.tables.reproduce`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
