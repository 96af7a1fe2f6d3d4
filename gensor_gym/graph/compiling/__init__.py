"""Compilation with Numba: entries for Python, parts of callers, shared units, a compile server, the notice of long compiling."""
