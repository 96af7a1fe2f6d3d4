"""Ansor (Zheng et al., OSDI 2020): sketches, evolution, the learned score model and its features, the task scheduler."""
