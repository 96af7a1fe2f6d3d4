"""Shared parts of strategies: rankings, programs as vectors of choices, ledgers of measurements, threads."""
