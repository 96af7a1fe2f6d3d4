"""Shared parts of commands: arguments, errors, exit."""
