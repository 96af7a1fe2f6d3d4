"""Work that keeps a device busy: a compilation pipeline, trials, shares of operators, processes, progress lines."""
