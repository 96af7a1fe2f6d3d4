"""CUDA C for GPU programs: the plan and what all families share, NVRTC, tensor maps; families in rooms of their own."""
