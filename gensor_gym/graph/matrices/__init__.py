"""Products as tensor cores take them: which instructions, and how their operands lie."""
