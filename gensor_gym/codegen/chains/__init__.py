"""Generators of C for chains of two products, such as attention, and for panels (`gensor_gym.chains`); CPUs only."""
