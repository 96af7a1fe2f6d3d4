"""`python -m experiments.task_cards`: see `experiments.recording.task_cards`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
