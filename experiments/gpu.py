"""Entry of `python -m experiments.gpu`; the command itself is `experiments.device.gpu`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
