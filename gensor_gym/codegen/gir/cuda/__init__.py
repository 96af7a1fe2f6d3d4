"""CUDA for the instruction graphs of `gensor_gym.gir`: a team of lanes for each row, a block for several rows."""
