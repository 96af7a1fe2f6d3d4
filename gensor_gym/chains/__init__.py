"""Two products with a row nest between them as one computation, of which attention is the best known."""
