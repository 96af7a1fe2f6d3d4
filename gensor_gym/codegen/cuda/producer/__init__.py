"""Generator of CUDA C for float32 products on CUDA cores of sm_90, whose tiles one warp copies through TMA."""
