"""Worker processes, and pools of them, that compile, verify and time kernels. A crash costs one trial."""
