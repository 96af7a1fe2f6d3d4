"""Searches that use proved optima: optima of similar operators (`nearest`), or a proof for the task itself (`certifier`)."""
