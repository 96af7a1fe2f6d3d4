"""What stays identical while files move: digests of what the project computes, item by item, in sections."""
