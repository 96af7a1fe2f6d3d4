"""Base classes of the environments, single and vector, and what they share."""
