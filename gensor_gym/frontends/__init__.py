"""Conversion of other libraries' networks to `networks.Network`. `torch_export` reads PyTorch's modules."""
