"""`python -m experiments.store`: see `experiments.recording.store`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
