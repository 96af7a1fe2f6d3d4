"""Roller, and Welder, whose search over tiles has its rules."""
