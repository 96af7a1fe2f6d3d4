"""`gensor fine_tune`: policies go on with measured rewards."""
