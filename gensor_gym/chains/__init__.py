"""A product with rows after it as one computation, and two products with rows between, such as attention."""
