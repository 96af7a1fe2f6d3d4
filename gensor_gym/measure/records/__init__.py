"""Stored measurements: the store of trials, recorded tables and the backends that read them."""
