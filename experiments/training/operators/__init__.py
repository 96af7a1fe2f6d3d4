"""Which operators are trained on: others near those of tables, other data types, drawn sizes."""
