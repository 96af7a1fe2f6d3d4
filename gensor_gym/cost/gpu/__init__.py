"""The analytic model of a GPU: lanes and shared memory, traffic of L2 and DRAM, one step on CUDA cores or tensor cores."""
