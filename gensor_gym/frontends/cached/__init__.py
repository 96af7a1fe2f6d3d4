"""Modules that were converted before: the digest of a module, and its network in the user's cache."""
