"""`gensor_gym/Fuse-v0`: the environment of plans of networks."""
