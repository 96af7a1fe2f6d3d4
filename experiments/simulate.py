"""`python -m experiments.simulate`: see `experiments.device.simulation.simulate`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
