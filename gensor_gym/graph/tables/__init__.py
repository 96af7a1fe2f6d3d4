"""A task as arrays of numbers for compiled code: their layout, how they are filled, and sizes of tiles computed from them."""
