"""Roller's tree construction, and Welder's search, which follows Roller's rules for tiles."""
