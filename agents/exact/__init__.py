"""Searches from proofs of optima: neighbours of certified optima (`nearest`), the proof itself (`certifier`)."""
