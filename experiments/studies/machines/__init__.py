"""A policy trained on drawn machines, on held-out real ones: searches by the model, regrets to the best any finds."""
