"""Generators of code for chains of two products, such as attention, and for panels (`gensor_gym.chains`).

C is here, CUDA in `cuda/`.
"""
