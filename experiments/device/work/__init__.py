"""Work that keeps a device busy: a compilation pipeline, trials, turns of operators, processes, progress lines."""
