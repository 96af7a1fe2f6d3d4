"""Searches that come from proofs of optima: descents over columns, neighbours of certified optima, the proof itself."""
