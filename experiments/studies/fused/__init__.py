"""Searches of fused operators by the model: a learned policy and others, on unseen shapes and an unseen class."""
