"""Training operators: variants of operators in tables, other data types, drawn sizes."""
