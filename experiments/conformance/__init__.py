"""Comparison of compiled functions with torch on torch's own operator database."""
