"""Certified optima of the model: computing and checking them, and an episode's loss against them."""
