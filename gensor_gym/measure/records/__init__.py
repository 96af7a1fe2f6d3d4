"""Stored measurements: the store of trials, recorded tables and the backend that answers from them."""
