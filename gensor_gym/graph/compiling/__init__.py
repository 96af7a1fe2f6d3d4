"""Compilation of functions: for Python, as text for others, once for many; and the notice of long compilations."""
