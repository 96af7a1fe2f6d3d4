"""Cost models of programs, compared on Measured v1, and the programs to record first under a budget."""
