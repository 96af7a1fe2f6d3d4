"""The stages of `python3 -m experiments.gpu`, each in its own process, and their runner, records and reports."""
