"""Shared parts of Gensor's tables: published numbers, searches, speeds, figures."""
