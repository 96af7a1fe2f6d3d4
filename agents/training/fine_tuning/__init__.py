"""`gensor fine_tune`: continue the training of policies with measured rewards."""
