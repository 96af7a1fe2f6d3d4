"""Shared parts of the construction environments, single and vector."""
