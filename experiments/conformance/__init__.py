"""Compiled functions against torch on torch's own operator database."""
