"""`python -m experiments.submit`: see `experiments.board.submit`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
