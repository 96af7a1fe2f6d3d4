"""Episodes of constructions, one at a time and many side by side: what all environments of them have in common."""
