"""Cost models of programs compared on Measured v1, and which programs a budget of recording should go to."""
