"""A task as tables: the layout of rows, the code that fills the tables, the sizes of a tile."""
