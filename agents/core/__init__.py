"""Shared parts of strategies: rankings, programs as coordinates, ledgers of measurements, threads."""
