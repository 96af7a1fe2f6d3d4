"""Shared parts of commands that run searches: settings, jobs, journals, and tables of results."""
