"""A plan as a picture: boxes in layers, drawn by matplotlib."""
