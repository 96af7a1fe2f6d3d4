"""Shared parts of commands: arguments, errors and exit."""
