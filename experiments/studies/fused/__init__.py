"""Searches of fused operators with the model: a learned policy and other strategies, on unseen shapes and an unseen class."""
