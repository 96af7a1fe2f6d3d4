"""A product with rows after it as one computation, and two products with rows between, of which attention is the best known."""
