"""`gensor_gym/Gir-v0`: the environment of fused operators."""
