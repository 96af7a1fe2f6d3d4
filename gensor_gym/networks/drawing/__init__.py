"""Drawing of a plan by matplotlib: kernels as boxes in layers, and links between them."""
