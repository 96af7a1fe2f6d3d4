"""`python -m experiments.headline_page`: see `experiments.device.headline_page`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
