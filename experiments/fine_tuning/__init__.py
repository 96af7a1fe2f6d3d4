"""`gensor fine_tune`: training of policies continued with measured rewards."""
