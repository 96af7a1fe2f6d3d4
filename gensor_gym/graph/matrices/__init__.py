"""Products on tensor cores: the instructions, and the layout of their operands."""
