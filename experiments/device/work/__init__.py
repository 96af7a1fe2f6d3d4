"""Work that keeps a device busy: parallel compilers, workers that take an operator each, trials, and lines about progress."""
