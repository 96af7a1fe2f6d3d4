"""Base classes of the environments, single and vector."""
