"""Files from which a training goes on: JSON and arrays in one archive, written whole, read without running anything."""
