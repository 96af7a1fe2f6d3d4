"""The analytic model of a GPU: lanes, memory, one step on CUDA cores or tensor cores."""
