"""From a kernel's source to a function of arrays: compiling, loading, the shared thread pool, launches on a GPU."""
