"""Work that keeps a device busy: compilers, workers that take an operator each, trials, progress lines."""
