"""A plan drawn as boxes in layers by matplotlib."""
