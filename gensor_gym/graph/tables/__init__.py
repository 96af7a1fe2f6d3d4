"""A task as tables: the layout of rows, the offsets and filling of the tables, and quantities of tiles computed from them."""
