"""Runs of commands: settings, jobs, journals, rows and tables of results."""
