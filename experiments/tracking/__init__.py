"""Runs as Weights & Biases and TensorBoard see them: the results are written first, and no failure here is one of theirs."""
