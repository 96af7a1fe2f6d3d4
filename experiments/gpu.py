"""`python -m experiments.gpu`: see `experiments.device.gpu`."""

import experiments.device  # noqa: F401  # wheels that travelled come on the path: the command line imports what a GPU machine lacks
from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
