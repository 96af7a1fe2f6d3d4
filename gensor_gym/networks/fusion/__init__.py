"""Fusion: the nodes of a block, every change of a plan by one decision, plans by rule."""
