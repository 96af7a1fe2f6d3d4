"""`python -m experiments.record`: see `experiments.recording.record`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
