"""Recorded times of programs: tables, stores, cards of tasks, Measured v1, and `gensor adapt`."""
