"""Searches that use proved optima: those of similar operators (`nearest`), or a proof for the task itself (`certifier`)."""
