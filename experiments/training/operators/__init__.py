"""Training operators: variants of those in tables, other data types, drawn sizes."""
