"""The stages of `python3 -m experiments.gpu`, each in its own process, with their runner, records and reports."""
