"""From text to a function on arrays: the C compiler, loading, the shared thread pool, cubins."""
