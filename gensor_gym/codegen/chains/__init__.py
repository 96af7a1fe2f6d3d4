"""Generators of code for two families of fused operators (`gensor_gym.chains`).

Chains are two products, such as attention. Panels are a product and then operations on its rows, such as a layer norm.
C is here, CUDA in `cuda/`.
"""
