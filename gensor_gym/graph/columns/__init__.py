"""Masks of whole columns: which limits read what of a chain of tiles, and which values of a column are legal."""
