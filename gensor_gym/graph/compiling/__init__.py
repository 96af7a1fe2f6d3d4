"""How functions are compiled with Numba: alone or inside their callers, in another process, with a notice if it is slow."""
