"""Searches by proofs of optima: transfer of certified optima of similar operators (`nearest`), and the proof (`certifier`)."""
