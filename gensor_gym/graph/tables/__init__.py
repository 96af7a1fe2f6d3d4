"""A task as tables: where everything stands in a row, what fills the tables, the numbers of a tile."""
