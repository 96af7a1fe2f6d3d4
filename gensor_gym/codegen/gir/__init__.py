"""Code for the instruction graphs of `gensor_gym.gir`."""
