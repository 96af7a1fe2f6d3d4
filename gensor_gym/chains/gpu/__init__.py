"""Chains of two matrix products (attention) on GPUs: schedules, construction graph, limits, analytic model.

`stream.py` divides the work between the products into passes over tiles of keys.
"""
