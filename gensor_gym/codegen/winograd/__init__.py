"""Code generator for convolutions by Winograd's algorithm."""
