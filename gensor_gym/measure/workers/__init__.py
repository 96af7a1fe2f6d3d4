"""Worker processes and pools that compile, verify and time kernels; a crash costs one trial."""
