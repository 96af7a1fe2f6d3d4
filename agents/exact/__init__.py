"""Searches that come from proofs of optima: neighbours of certified optima, the proof itself."""
