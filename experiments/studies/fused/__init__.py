"""Searches of fused operators by the model: a learned policy beside others, on shapes and a class that it has not seen."""
