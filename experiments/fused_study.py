"""`python -m experiments.fused_study`: see `experiments.studies.fused.study`."""

from experiments.entry import run_as_main

run_as_main(__name__, __spec__)
