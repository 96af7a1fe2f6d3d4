"""`python -m experiments.leaderboard`: see `experiments.board.leaderboard`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
