"""Generator of CUDA for row nests: a team of lanes computes each row, and a block several rows."""
