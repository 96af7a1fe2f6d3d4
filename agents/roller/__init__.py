"""Roller, and Welder's search, which follows Roller's rules for tiles."""
