"""Suites about environments: `env` times steps, their parts and training; `start` times the start in a new process."""
