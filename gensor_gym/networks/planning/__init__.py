"""The plan of a network as a graph of decisions: what `gensor_gym/Fuse-v0` steps through, and random networks to train on."""
