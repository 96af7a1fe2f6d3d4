"""Generators for chains of two products, such as attention, and for panels (`gensor_gym.chains`): C here, CUDA in `cuda/`."""
