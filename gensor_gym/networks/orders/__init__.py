"""Orders of images in memory: the choice of the values that have channels last, and the rewritten network."""
