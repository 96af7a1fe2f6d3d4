"""Certified optima of the model: made, checked, and what an episode lost against them."""
