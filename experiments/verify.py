"""`python -m experiments.verify`: see `experiments.board.verify`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
