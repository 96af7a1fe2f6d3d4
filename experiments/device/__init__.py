"""Measurements on a GPU by `python3 -m experiments.gpu`: its stages, each in a process of its own, their records and reports."""
