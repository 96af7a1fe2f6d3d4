"""Tracking of runs with Weights & Biases and TensorBoard. Results are written first, and a tracking failure never fails a run."""
