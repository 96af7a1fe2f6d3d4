"""Entry of `python -m experiments.bench`; the command itself is `experiments.benches.bench`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
