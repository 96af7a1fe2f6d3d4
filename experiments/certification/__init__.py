"""Certified optima of the model: computing and checking them, and the loss of an episode against them."""
