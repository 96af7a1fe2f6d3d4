"""The style of all figures."""
